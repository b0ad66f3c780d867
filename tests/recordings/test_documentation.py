"""The examples of docs/recordings.md run, and print what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "recordings.md"


def test_the_examples_run_and_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    exec(compile(code, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"^print\(.*?  # (.*)$", code, re.MULTILINE)
    assert len(promised) == len(printed) > 6
    for promise, line in zip(promised, printed, strict=True):
        if promise == "the same, by onset and duration":
            promise = "2 segments of 400 steps"
        begin = re.split(r" \.\.\.|: (?:the columns|from)", promise)[0]
        assert begin in line
