"""Text tables: delimiters, headers, index columns, comments, byte-order marks, and mistakes by line and column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.spin_data import random_spins

from kising.errors import RecordingError
from kising.recordings import Segments, as_segments, read_recording

X = random_spins(60, 4)
FRAME = pd.DataFrame(X, columns=list("abcd"))
PLAIN = as_segments(X)
NAMED = as_segments(FRAME)


def lines(delimiter: str, data: np.ndarray = X, end: str = "\n") -> str:
    return "".join(delimiter.join(map(str, row)) + end for row in data.tolist())


def indexed(index: object, name: str | None = None) -> pd.DataFrame:
    return FRAME.set_index(pd.Index(index, name=name))


COUNT = np.arange(60)
TEXTS = {
    "commas": (lines(","), PLAIN),
    "commas and blanks": (lines(", "), PLAIN),
    "semicolons": (lines(";"), PLAIN),
    "tabs": (lines("\t"), PLAIN),
    "blanks": (lines(" "), PLAIN),
    "aligned": (lines("   "), PLAIN),
    "no last newline": (lines(",").rstrip(), PLAIN),
    "Windows": (lines(",", end="\r\n"), PLAIN),
    "old Macs": (lines(",", end="\r"), PLAIN),
    "a delimiter at the end": (lines(",", end=",\n"), PLAIN),
    "empty lines": (lines(",", end="\n\n"), PLAIN),
    "comments": ("# made up\n" + lines(",", end=" # a step\n") + "# the end", PLAIN),
    "plus signs": (lines(",").replace("1", "+1").replace("-+", "-"), PLAIN),
    "floats": (lines(",", X.astype(float)), PLAIN),
    "decimal commas": (lines(";", X.astype(float)).replace(".", ","), PLAIN),
    "quotes": ('"' + lines('","', end='"\n"')[:-1], PLAIN),
    "words": (lines(",", X > 0), PLAIN),
    "a header": ("a,b,c,d\n" + lines(","), NAMED),
    "a header in quotes": ('"a","b","c","d"\n' + lines(","), NAMED),
    "a header with semicolons": ("a;b;c;d\n" + lines(";"), NAMED),
    "a byte-order mark": ("\ufeffa;b;c;d\n" + lines(";"), NAMED),
    "a header in a comment": ("# made up\n# a b c d\n" + lines(" "), NAMED),
    "a header of numbers": ("0,1,2,3\n" + lines(","), PLAIN),
    "a header of row names too few": ('"a","b","c","d"\n' + FRAME.to_csv(header=False), NAMED),
    "pandas": (FRAME.to_csv(), NAMED),
    "pandas without names": (pd.DataFrame(X).to_csv(), PLAIN),
    "pandas, one column": (FRAME[["a"]].set_axis([0], axis=1).to_csv(), as_segments(X[:, :1])),
    "an index": (indexed(COUNT, "index").to_csv(), NAMED),
    "an index that falls": (indexed(-2 * COUNT, "index").to_csv(), None),
    "times": (indexed(COUNT / 50, "Time (s)").to_csv(), NAMED),
    "times with decimal commas": (indexed(COUNT / 50, "t").to_csv(sep=";", decimal=","), NAMED),
    "dates": (indexed(pd.date_range("2020-01-01", periods=60), "Date").to_csv(), NAMED),
    "a last column of times": (FRAME.assign(time=COUNT).to_csv(index=False), NAMED),
    "a spin called t": (FRAME.rename(columns={"b": "t"}).to_csv(index=False), None),
}


@pytest.mark.parametrize("ending", [".csv", ".txt", ".TSV"])
@pytest.mark.parametrize("case", TEXTS)
def test_text_of_every_kind_gives_the_same_recording(tmp_path: Path, case: str, ending: str) -> None:
    text, expected = TEXTS[case]
    path = tmp_path / f"data{ending}"
    path.write_bytes(text.encode())
    found = read_recording(path)
    if expected is not None:
        assert found == expected
    if case == "a spin called t":
        assert found.names == ("a", "t", "c", "d")
    if case == "an index that falls":
        assert found.names == ("a", "b", "c", "d")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text("µ,b,c,d\n" + lines(","), encoding=encoding)
    assert read_recording(path).names == ("µ", "b", "c", "d")


@given(
    arrays.arrays(
        np.int8, st.tuples(st.integers(4, 30), st.integers(1, 4)), elements=st.sampled_from([-1, 0, 1])
    ),
    st.sampled_from([",", ";", "\t"]),
    st.booleans(),
    st.booleans(),
)
def test_gaps_in_text_are_those_of_an_array(tmp_path_factory, x, delimiter, header, index) -> None:
    """0 stands for a gap here; what as_segments refuses is refused."""
    data = pd.DataFrame(np.where(x == 0, np.nan, x), columns=[f"n{k}" for k in range(x.shape[1])])
    path = tmp_path_factory.mktemp("text") / "data.csv"
    absent = ""
    if (
        x.shape[1] == 1 or (x[:, -1] == 0).all()
    ):  # an empty line is no row, and a column without cells no column
        absent = "NA"
    data.to_csv(path, sep=delimiter, header=header, index=index, na_rep=absent)

    def outcome(read, data) -> Segments | str:
        try:
            found = read(data)
        except ValueError as error:
            return str(error).removeprefix(f"{path}: ").split(",")[0]
        return found

    expected = outcome(as_segments, np.where(x == 0, np.nan, x))
    found = outcome(read_recording, path)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert isinstance(found, Segments)
        assert [s.tolist() for s in found.spins] == [s.tolist() for s in expected.spins]
        assert found.origins == expected.origins


def test_a_column_of_labels_or_rising_numbers_is_no_spin(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    for index in (COUNT + 7, COUNT * 0.5, pd.date_range("2020-01-01", periods=60)):
        path.write_text(indexed(index).to_csv(header=False, sep=";", decimal=","))
        found = read_recording(path)
        np.testing.assert_array_equal(found.spins[0], X)
        assert found.notes == ("column 1 is taken as the time or label of rows, and is not a spin",)


def test_trials_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    trials = [X[:20], X[20:33], X[33:]]
    label = np.repeat([5, 3, 9], [20, 13, 27])
    step = np.concatenate([np.arange(len(x)) for x in trials])
    expected = as_segments([pd.DataFrame(x, columns=list("abcd")) for x in trials])
    path.write_text(FRAME.assign(Trial=label).to_csv(index=False))
    assert read_recording(path) == expected
    path.write_text(FRAME.assign(Trial=label, time=step).to_csv(index=False))
    assert read_recording(path) == expected
    path.write_text(FRAME.assign(Trial=label, b=np.where(COUNT == 35, 3, FRAME["b"])).to_csv(index=False))
    with pytest.raises(RecordingError, match=r"line 37, spin 1 \('b'\) is 3"):
        read_recording(path)
    path.write_text(FRAME.assign(time=step).to_csv(index=False))
    found = read_recording(path)
    assert found.spins[1].tolist() == X[20:33].tolist()
    assert found.notes == ("time goes back 2 times, and a new trial begins at each",)
    path.write_text(FRAME.assign(trial=np.roll(label, 1)).to_csv(index=False))
    with pytest.raises(RecordingError, match="sort the rows by trial"):
        read_recording(path)


def test_times_that_jump_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(indexed(COUNT + 9 * (COUNT > 20) + 9 * (COUNT > 40), "time").to_csv())
    assert "times jump at 2 places" in read_recording(path).notes[0]


def test_covariates_from_text(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(FRAME.to_csv())
    inputs = pd.DataFrame({"trend": COUNT / 7, "light": np.sin(COUNT)})
    (tmp_path / "inputs.csv").write_text(inputs.to_csv(index=False))
    found = read_recording(tmp_path / "data.csv", covariates=tmp_path / "inputs.csv")
    assert found.covariate_names == ("trend", "light")
    np.testing.assert_allclose(found.covariates[0], inputs, rtol=1e-15)
    (tmp_path / "inputs.csv").write_text("light\n1\nx\n")
    with pytest.raises(RecordingError, match=r"inputs.csv: line 3, column 1 \(light\): 'x' is not a number"):
        read_recording(tmp_path / "data.csv", covariates=tmp_path / "inputs.csv")


def test_a_delimiter_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text(lines("|"))
    assert read_recording(path, delimiter="|") == PLAIN
    path.write_text(lines("\t"))
    for word in ("tab", "\t", "blanks", " "):
        assert read_recording(path, delimiter=word) == PLAIN
    for wrong in ("", "||", '"', "a", "\n"):
        with pytest.raises(RecordingError, match="give one character, 'tab' or 'blanks'"):
            read_recording(path, delimiter=wrong)


BAD = {
    "a word": ("a,b\n1,1\n1,x\n0,1\n", r"line 3, column 2 \(b\): 'x' is not a number"),
    "a word after comments": (
        "# one\n\na,b\n1,1\n# two\n1,0\n0,x\n",
        r"line 7, column 2 \(b\): 'x' is not a number",
    ),
    "a word without names": ("1,1\n1,0\nx,1\n", "line 3, column 1: 'x' is not a number"),
    "two numbers in a cell": ("a;b\n1;0\n1;1 1\n", r"line 3, column 2 \(b\): '1 1' is not a number"),
    "a short row": ("a,b\n1,1\n1\n", "line 3 has 1 cell where others have 2"),
    "a long row": ("1 0\n1 1\n\n1 0 1\n", "line 4 has 3 cells where others have 2"),
    "a quoted long row": ('1,0\n"1",0,1\n', "line 2 has 3 cells where others have 2"),
    "a short header": ("a\n1,0,1\n0,0,1\n", "line 2 has 3 cells where others have 1"),
    "counts": ("a,b\n1,0\n0,3\n1,1\n", r"line 3, spin 1 \('b'\) is 3: .*spike counts"),
    "mixed": ("1,0\n1,1\n-1,1\n", r"both -1 \(line 3, spin 0\) and 0 \(line 1, spin 1\)"),
    "only a header": ("a,b\n", "a header and no rows"),
    "only comments": ("# a\n#\n", "no rows"),
    "only blanks": (" \n\n", "no rows"),
    "only an index": ("time\n1\n2\n3\n", "no columns besides the index"),
    "null bytes": ("a\0b\n", "null bytes and is not text"),
    "spike times": ("time,unit\n0.1,3\n0.2,4\n", "looks like spike times.*give bin, for example 20ms"),
    "short": ("1,0\n0,1\n", "no segment has 3 steps in a row"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_in_text_are_named_by_line_and_column(tmp_path: Path, case: str) -> None:
    text, message = BAD[case]
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(RecordingError, match=message) as error:
        read_recording(path)
    assert str(error.value).startswith(f"{path}: ")


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"1,0\n0,\xff\n")
    with pytest.raises(RecordingError, match=r"byte 6 is not utf-8 text: save the table as UTF-8"):
        read_recording(path)
