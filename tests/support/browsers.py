"""Pages in a headless Chromium."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PROBE = """<!doctype html><meta charset="utf-8"><body>
<iframe id="f" width="{width}" height="800" srcdoc="{page}"></iframe>
<script>
const frame = document.getElementById("f");
frame.onload = () => {{
  const inner = frame.contentDocument, images = [...inner.images];
  const small = [...inner.querySelectorAll("p, td, th, dd")].filter(
    one => parseFloat(frame.contentWindow.getComputedStyle(one).fontSize) < 12).length;
  document.title = JSON.stringify({{
    images: images.length,
    drawn: images.filter(one => one.complete && one.naturalWidth > 0).length,
    widest: Math.max(...images.map(one => one.getBoundingClientRect().right)),
    narrowest: Math.min(...images.map(one => one.getBoundingClientRect().width)),
    overflow: inner.documentElement.scrollWidth - inner.documentElement.clientWidth,
    small: small,
    cut: [...inner.querySelectorAll("td, th")].filter(
      one => one.getBoundingClientRect().right > inner.documentElement.clientWidth).length,
    cards: frame.contentWindow.getComputedStyle(inner.querySelector(".claims tr")).display,
  }});
}};
</script>"""


def look(page: Path, width: int, place: Path) -> dict[str, Any]:
    """Measure a page in a browser window of this width; fail on any message on the console.

    images, drawn: the number of images, and of those that could be shown. widest, narrowest: the rightmost edge and
    the smallest width of an image, in pixels. overflow: pixels by which the page is wider than the window. small:
    the number of texts below 12 pixels. cut: the number of cells of tables that end beyond the window. cards: the
    layout of a row of claims.
    """
    return _seen(PROBE, page, width, place)


FIGURES = """<!doctype html><meta charset="utf-8"><body>
<iframe id="f" width="{width}" height="800" srcdoc="{page}"></iframe>
<script>
const frame = document.getElementById("f");
frame.onload = () => {{
  const inner = frame.contentDocument, widths = [...inner.querySelectorAll("svg")].map(
    one => one.getBoundingClientRect().width);
  const small = [...inner.querySelectorAll("p, td, th, dd")].filter(
    one => parseFloat(frame.contentWindow.getComputedStyle(one).fontSize) < 12).length;
  document.title = JSON.stringify({{
    figures: widths.length,
    narrowest: Math.min(...widths),
    overflow: inner.documentElement.scrollWidth - inner.documentElement.clientWidth,
    small: small,
  }});
}};
</script>"""


def look_at_figures(page: Path, width: int, place: Path) -> dict[str, Any]:
    """Measure a page whose figures are <svg> elements; fail on any message on the console.

    figures: the number of figures. narrowest: the smallest width of one, in pixels. overflow and small: as in `look`.
    """
    return _seen(FIGURES, page, width, place)


_QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-extensions"),
]


def dumped(url: str, profile: Path, width: int) -> str:
    """The page at an address after some seconds of its own time, as HTML."""
    assert BROWSER is not None
    answer = subprocess.run(
        [BROWSER, *_QUIET, f"--user-data-dir={profile}", f"--window-size={width},900", "--virtual-time-budget=5000",
         "--dump-dom", url],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    return answer.stdout


class WatchedPage:
    """A page that stays open in a browser; its title can be read from outside."""

    def __init__(self, url: str, profile: Path) -> None:
        self._url, self._profile = url, profile

    def __enter__(self) -> WatchedPage:
        assert BROWSER is not None
        self._browser = subprocess.Popen(
            [BROWSER, *_QUIET, f"--user-data-dir={self._profile}", "--remote-debugging-port=0", self._url],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._browser.pid, signal.SIGKILL)
        self._browser.wait()

    def title(self) -> str:
        """The title that the page has now; empty before the browser has started."""
        try:
            port = (self._profile / "DevToolsActivePort").read_text().split()[0]
            with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
                pages = [one for one in json.load(answer) if one["type"] == "page"]
        except (OSError, ValueError, IndexError):
            return ""
        return str(pages[0]["title"]) if pages else ""


def _seen(template: str, page: Path, width: int, place: Path) -> dict[str, Any]:
    probe = place / "probe.html"
    probe.write_text(template.format(width=width, page=html.escape(page.read_text())))
    assert BROWSER is not None
    answer = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
         f"--user-data-dir={place / 'profile'}", "--window-size=1400,900", "--virtual-time-budget=20000",
         "--dump-dom", probe.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in answer.stderr
    title = re.search(r"<title>(.*?)</title>", answer.stdout)
    assert title is not None
    seen: dict[str, Any] = json.loads(html.unescape(title[1]))
    return seen
