"""The strict YAML loader: what unquoted words mean, where values stand, and what is refused."""

import os

import pytest

from kising.errors import SpecError
from kising.sweep.spec.loading import MAX_BYTES, parse_value, parse_yaml, read_document, scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e5", 1e5),
        ("1E5", 1e5),
        ("1.5e-3", 1.5e-3),
        ("-2.", -2.0),
        (".5", 0.5),
        ("+3", 3),
        ("1_000", 1000),
        ("1_000.5", 1000.5),
        ("010", 10),
        ("0x1F", 31),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        (".inf", float("inf")),
    ],
)
def test_a_word_that_is_a_value(text, value):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)
    assert parse_value(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
        "1:30",
        "2015-07-01",
        "1e",
        "e5",
        ".",
        "-",
        "+",
        "1__0",
        "_1",
        "0o17",
        "inf",
    ],
)
def test_a_word_that_stays_a_word(text):
    assert scalar(text) == text


def test_quotes_make_text():
    assert parse_value("'1e5'") == "1e5"
    assert parse_value('"true"') == "true"


def test_a_number_of_many_digits_is_left_as_text():
    digits = "9" * 5000  # int() of it would raise
    assert parse_value(digits) == digits


def places(text):
    return {place.key: place.line for place in parse_yaml(text, source="f").places.values()}


def test_every_value_has_its_line():
    text = "name: a\nmodel:\n  visible: 3\n\n  # a comment\n  hidden:\n    4\n"
    text += "axes:\n- {data.length: [1,\n   2]}\n"
    assert places(text) == {
        "name": 1,
        "model": 2,
        "model.visible": 3,
        "model.hidden": 6,
        "axes": 8,
        "axes[0]": 9,
        "axes[0].data.length": 9,
        "axes[0].data.length[0]": 9,
        "axes[0].data.length[1]": 10,
    }


def test_a_missing_value_has_the_line_of_its_section():
    document = parse_yaml("\nname: a\nmodel:\n  visible: 3\n", source="f")
    assert str(document.problem(("model", "hidden"), "missing")) == "f:3: model.hidden: missing"
    assert str(document.problem(("seed",), "missing")) == "f:2: seed: missing"


def test_of_a_key_given_twice_the_first_stands_and_both_lines_are_named():
    document = parse_yaml("a: {b: 1}\na: {b: 2, c: 3}\nd: 4\n", source="f")
    assert document.value == {"a": {"b": 1}, "d": 4}
    assert [str(problem) for problem in document.problems] == [
        "f:2: a: given twice, first at line 1; keep one"
    ]


def test_keys_are_text_whatever_they_look_like():
    assert parse_yaml("1e5: a\ntrue: b\n~: c\n'': d\n", source="f").value == {
        "1e5": "a",
        "true": "b",
        "~": "c",
        "": "d",
    }


def one_line(call, *arguments):
    with pytest.raises(SpecError) as caught:
        call(*arguments)
    assert len(caught.value.problems) == 1
    return str(caught.value)


def test_a_key_that_cannot_be_printed_is_escaped():
    document = parse_yaml('"\\e[31m": 1\n"": 2\n', source="f")
    assert [place.key for place in document.places.values()] == [r"'\x1b[31m'", "''"]


def test_aliases_cannot_multiply():
    letters = zip("abcdefgh", "bcdefghi", strict=True)
    laughs = "a: &a [x, x]\n" + "".join(f"{c}: &{c} [*{b}, *{b}]\n" for b, c in letters)
    assert (
        one_line(lambda: parse_yaml(laughs, source="f"))
        == "f:2: the alias *a is not read here; write the value out"
    )


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_at_once(opening):
    with pytest.raises(SpecError) as caught:  # reading on would take hours
        parse_yaml(opening * (MAX_BYTES // len(opening)), source="f")
    assert len(caught.value.problems) == 1


def test_a_missing_file_names_one_that_is_near(tmp_path):
    (tmp_path / "quickstart.yaml").write_text("name: a\n")
    wanted, there = tmp_path / "quikstart.yaml", tmp_path / "quickstart.yaml"
    assert one_line(read_document, wanted) == f"{wanted}: no such file; did you mean {str(there)!r}?"
    nowhere = tmp_path / "none" / "a.yaml"
    assert one_line(read_document, nowhere) == f"{nowhere}: no such file"


def test_what_is_no_file_is_refused(tmp_path):
    assert one_line(read_document, tmp_path) == f"{tmp_path}: is a directory, not a sweep file"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert one_line(read_document, pipe) == f"{pipe}: is not a regular file"
    below = pipe / "a.yaml"
    assert one_line(read_document, below) == f"{below}: cannot be read: not a directory"
    assert one_line(read_document, "a\0b") == "a\0b: is not a path"


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "a.yaml"
    path.write_text("name: a\n")

    def refuse(self, mode):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)  # the tests may run as root, whom no mode stops
    assert one_line(read_document, path) == f"{path}: cannot be read: permission denied"


def test_size_is_bounded(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text("name: a\n" + "#" * MAX_BYTES)
    assert (
        one_line(read_document, path)
        == f"{path}: is larger than {MAX_BYTES} bytes, so it is hardly a sweep file"
    )


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\n")
    assert read_document(path).value == {"name": "a"}
