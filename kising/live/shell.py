"""The page around a live report: it requests the state every second or two, and the report when that has changed."""

from __future__ import annotations

from html import escape

from kising.report.page import document

_STYLE = """
<style>
#live { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 0.6rem 1rem; }
#live progress { width: 100%; height: 1rem; }
#live h3 { margin: 0.6rem 0 0.2rem; }
#live ul { margin: 0.2rem 0; padding-left: 1.2rem; font-size: 0.875rem; }
#live li { overflow-wrap: anywhere; }
#lost { color: var(--bad); font-weight: 600; }
[hidden] { display: none; }
</style>
"""

SCRIPT = """
"use strict";
const at = id => document.getElementById(id);
let shown = -1;

function list(id, rows) {
  const target = at(id), items = rows.map(row => {
    const item = document.createElement("li");
    item.textContent = row.filter(cell => cell).join(" \\u00b7 ");
    return item;
  });
  target.replaceChildren(...items);
  target.parentElement.hidden = !rows.length;
}

async function report() {
  const answer = await fetch("report.html", {cache: "no-store"});
  if (!answer.ok) throw new Error(answer.status);
  const open = new Set([...document.querySelectorAll("#report details[open] > summary")].map(one => one.textContent));
  at("report").innerHTML = await answer.text();
  for (const one of document.querySelectorAll("#report details > summary"))
    if (open.has(one.textContent)) one.parentElement.open = true;
}

async function look() {
  try {
    const answer = await fetch("state.json", {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    const state = await answer.json();
    const finished = state.done + state.failed;
    at("state").textContent = `${state.state}: ${state.done} of ${state.total} runs done, ${state.failed} failed`;
    at("headline").textContent = state.headline;
    at("bar").max = Math.max(state.total, 1);
    at("bar").value = finished;
    list("nodes", state.nodes);
    list("flights", state.flights);
    list("failures", state.failures);
    if (state.report !== shown) { await report(); shown = state.report; }
    document.title = `${state.state} ${finished}/${state.total} ${document.body.dataset.name}`;
    at("lost").hidden = true;
  } catch (error) {
    at("lost").hidden = false;
    document.title = `no connection ${document.body.dataset.name}`;
  }
  setTimeout(look, 1500);
}
look();
"""


def shell(name: str) -> str:
    """The page; `name` is that of the sweep's directory."""
    inside = [
        f"<h1>{escape(name)}</h1>",
        '<div id="live"><p id="state">loading</p><progress id="bar" value="0" max="1"></progress>',
        '<p id="headline" class="soft"></p>',
        '<p id="lost" hidden>No connection to the server. The page reconnects by itself when it is back: '
        "<code>kising serve</code>, or the sweep with <code>--page</code>.</p>",
        '<div hidden><h3>Nodes</h3><ul id="nodes"></ul></div>',
        '<div hidden><h3>Longest in flight</h3><ul id="flights"></ul></div>',
        '<div hidden><h3>Failed runs</h3><ul id="failures"></ul></div></div>',
        '<p class="soft">Figures and tables are updated a few seconds after runs finish.</p>',
        '<div id="report"></div>',
        '<script src="live.js"></script>',
    ]
    text = document(name, inside, head=_STYLE)
    return text.replace("<body>", f'<body data-name="{escape(name, quote=True)}">', 1)
