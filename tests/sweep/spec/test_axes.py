"""Axes: the values that each form stands for, and that they are found without expanding."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kising.options import LEAVES
from kising.sweep.spec.axes import MAX_POINTS, read_axes
from kising.sweep.spec.documents import plain_document
from kising.sweep.spec.spacing import Spacing


def axes_of(axes):
    return read_axes(plain_document({"axes": axes}))


def values(key, written):
    read = axes_of({key: written})
    assert read.problems == ()
    (axis,) = read.axes
    return list(axis.columns[0])


def test_a_list_is_taken_as_it_stands_in_the_type_of_its_key():
    lengths = values("data.length", [1e3, 20, 5])
    assert lengths == [1000, 20, 5]
    assert {type(length) for length in lengths} == {int}
    assert {type(strength) for strength in values("model.strength", [0, 1, 2.5])} == {float}
    assert values("learner.estep.damping", ["adaptive", 0, 0.5]) == ["adaptive", 0.0, 0.5]


def test_linspace_is_what_one_would_write_down():
    assert values("model.strength", {"linspace": [0.1, 1, 10]}) == [
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
        1.0,
    ]


def test_logspace_takes_the_end_values_and_meets_the_decades():
    assert values("data.length", {"logspace": [1e3, 1e6, 4]}) == [1000, 10_000, 100_000, 1_000_000]
    assert values("learner.tolerance", {"logspace": [1e-8, 1e-2, 7]}) == [
        1e-8,
        1e-7,
        1e-6,
        1e-5,
        1e-4,
        1e-3,
        1e-2,
    ]


def test_logspace_rounds_for_whole_numbered_keys():
    exact = [10 ** (3 + i / 2) for i in range(7)]
    assert values("data.length", {"logspace": [1e3, 1e6, 7]}) == [round(value) for value in exact]


@pytest.mark.parametrize("arguments", [[5, 14, 3], [3, 12], [10, 3, -3], [1e3, 1e4, 1e3], [7, 8, 5]])
def test_range_of_whole_numbers_is_pythons(arguments):
    assert values("data.length", {"range": arguments}) == list(range(*(int(a) for a in arguments)))


def test_range_of_decimals_excludes_its_stop():
    assert values("model.strength", {"range": [0.1, 0.5, 0.1]}) == [0.1, 0.2, 0.3, 0.4]
    assert values("model.strength", {"range": [0.5, 0.1, -0.2]}) == [0.5, 0.3]


finite = st.floats(min_value=1e-9, max_value=1e9)


@given(finite, finite, st.integers(2, 40))
def test_spaced_values_agree_with_the_formulas(a, b, n):
    if not a < b or len({math.log(a) + (math.log(b) - math.log(a)) * i / (n - 1) for i in range(n)}) < n:
        return
    linear = axes_of({"model.strength": {"linspace": [a, b, n]}})
    logarithmic = axes_of({"model.strength": {"logspace": [a, b, n]}})
    for read, formula in (
        (linear, lambda i: a + (b - a) * i / (n - 1)),
        (logarithmic, lambda i: math.exp(math.log(a) + (math.log(b) - math.log(a)) * i / (n - 1))),
    ):
        if read.problems:  # ends so near that doubles between them repeat
            assert "comes twice" in read.problems[0].message
            continue
        (column,) = read.axes[0].columns
        assert (column[0], column[-1], len(column)) == (a, b, n)
        assert list(column) == sorted(column)
        assert all(math.isclose(column[i], formula(i), rel_tol=1e-12) for i in range(n))


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(-50, 50).filter(bool))
def test_tenths_step_like_whole_numbers(start, stop, step):
    read = axes_of({"model.strength": {"range": [start / 10, stop / 10, step / 10]}})
    expected = [number / 10 for number in range(start, stop, step)]
    if not expected:
        assert "nothing lies" in read.problems[0].message
    elif min(expected) < 0:
        assert "out of range" in read.problems[0].message
    else:
        assert list(read.axes[0].columns[0]) == expected


def test_a_mapping_multiplies_and_an_item_varies_together():
    read = axes_of(
        [{"data.length": [10, 20, 30]}, {"model.visible": [5, 6], "model.hidden": {"range": [1, 3]}}]
    )
    assert [axis.keys for axis in read.axes] == [("data.length",), ("model.visible", "model.hidden")]
    assert read.axes[1].columns == ((5, 6), (1, 2))
    assert read.points == 6
    assert (
        axes_of({"data.length": [10, 20, 30], "model.visible": [5, 6], "model.hidden": [1, 2]}).points == 12
    )
    assert axes_of(None).points == axes_of({}).points == axes_of([]).points == 1


def test_every_key_of_a_point_can_be_an_axis():
    for key, leaf in LEAVES.items():
        if not leaf.option.varies:
            continue
        kind = leaf.kind
        word = getattr(kind, "words", ("",))[0] or (True if type(kind).__name__ == "Flag" else 0.5)
        word = 5 if type(kind).__name__ == "Whole" else word
        assert values(key, [word]) == [word]


def test_mistaken_values_leave_their_key_named_and_make_no_axis():
    read = axes_of({"data.length": [0], "model.hidden": [2]})
    assert list(read.named) == ["data.length", "model.hidden"]
    assert [axis.keys for axis in read.axes] == [("model.hidden",)]


@pytest.mark.parametrize(
    "axes",
    [
        {"data.length": {"linspace": [3, 1e15, 1e6]}, "model.strength": {"linspace": [0, 1, 1e6]}},
        {"data.length": {"logspace": [3, 1e15, 1e12]}},
        {"data.length": {"range": [3, 1e15]}},
        {"data.length": {"range": [3, 10**15, 1]}, "model.visible": {"range": [1, 10**15, 1]}},
        {"model.strength": {"range": [0, 1e300, 1e-300]}, "learner.rate": {"range": [0, 1e300, 1e-300]}},
        {"data.length": range(3, 10**12)},
    ],
)
def test_too_many_points_are_refused_without_expanding_them(axes, monkeypatch):
    monkeypatch.delattr(Spacing, "numbers")
    document = plain_document({"axes": axes})
    problems = [*document.problems, *read_axes(document).problems]
    assert any(f"at most {MAX_POINTS}" in problem.message for problem in problems)


def test_as_many_points_as_allowed_are_taken():
    assert axes_of({"data.length": {"range": [3, 3 + MAX_POINTS]}}).points == MAX_POINTS
    assert axes_of({"data.length": {"range": [3, 4 + MAX_POINTS]}}).axes == ()
