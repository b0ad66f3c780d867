"""Claims on runs made up so that the answer is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from support.rows import make_runs

from kising.report.claims.paper import claims
from kising.report.claims.verdicts import (
    ABOVE_ZERO,
    BELOW_ZERO,
    Finding,
    Measured,
    Range,
    difference,
    inside,
    mean,
    slope,
    times_as_many,
)

NONE = pd.DataFrame()


def found(rows, figure: str, couplings=NONE):
    frame = make_runs([{"model.visible": 20, "model.hidden": 4, "data.length": 1000} | row for row in rows])
    return [one for one in claims(frame, couplings) if one.figure == figure]


def noise(seed: int):
    return np.random.default_rng(seed).normal(0, 0.02, 1000).__iter__()


def test_verdicts_want_the_whole_interval() -> None:
    around = Range(-0.6, -0.4)
    assert inside(Measured(-0.5, -0.55, -0.45), around) == "holds"
    assert inside(Measured(-0.5, -0.65, -0.35), around) == "not enough data"
    assert inside(Measured(-0.2, -0.25, -0.15), around) == "does not hold"
    assert inside(Measured(-0.5, np.nan, np.nan), around) == "not enough data"
    below, above = Measured(-1, -2, -0.1), Measured(1, 0.1, 2)
    assert inside(below, BELOW_ZERO) == inside(above, ABOVE_ZERO) == "holds"
    for unclear in (Measured(0, -1, 1), Measured(-1, -np.inf, 1), Measured(-1, np.nan, np.nan)):
        assert inside(unclear, BELOW_ZERO) == inside(unclear, ABOVE_ZERO) == "not enough data"
    assert inside(above, BELOW_ZERO) == inside(below, ABOVE_ZERO) == "does not hold"


@pytest.mark.parametrize("value", [-0.47, -0.45, -0.42, -0.37, -0.3, -0.65])
def test_as_many_realizations_as_are_asked_for_decide(value: float) -> None:
    """The interval shrinks as one over the square root of their number."""
    expected = Range(-0.6, -0.4)
    measured = Measured(value, value - 0.3, value + 0.3)
    times = times_as_many(measured, expected)
    for number, clear in ((1.01 * times, True), (0.99 * times, False)):
        half = 0.3 / np.sqrt(number)
        verdict = inside(Measured(value, value - half, value + half), expected)
        assert (verdict != "not enough data") == clear


def test_how_many_more_is_said_only_where_it_is_known() -> None:
    assert times_as_many(Measured(-1, -3, 1), BELOW_ZERO) == pytest.approx(4)
    assert times_as_many(Measured(0, -1, 1), BELOW_ZERO) == np.inf
    for known in (Measured(-1, -2, -0.1), Measured(1, 0.1, 2), Measured(-1, np.nan, np.nan)):
        assert np.isnan(times_as_many(known, BELOW_ZERO))


@pytest.mark.parametrize(
    ("measured", "decision"),
    [
        (Measured(-1, -2, -0.1), "holds"),
        (Measured(-1, -3, 1), "not enough data (about 4 times as many realizations would decide)"),
        (Measured(-1, -11, 9), "not enough data (more than 50 times as many realizations would decide)"),
        (Measured(0, -1, 1), "not enough data"),
    ],
)
def test_an_open_verdict_says_what_would_decide_it(measured: Measured, decision: str) -> None:
    one = Finding.expecting(
        BELOW_ZERO, figure="7", claim="", where="", quantity="", measured=measured, rule=""
    )
    assert one.decision == decision


def test_mean_has_the_t_interval() -> None:
    y = np.array([0.2, 1.1, 0.4, 2.0, 0.9])
    centre = y.sum() / 5
    half = stats.t.isf(0.025, df=4) * np.sqrt(((y - centre) ** 2).sum() / 4 / 5)
    assert mean([*y, np.nan]) == pytest.approx((centre, centre - half, centre + half))


@pytest.mark.parametrize("n", [4, 5, 12])
def test_slope_has_the_t_interval_of_least_squares(n: int) -> None:
    """b = Sxy/Sxx with variance s²/Sxx, s² = Σ(residual)²/(n - 2), and n - 2 degrees of freedom."""
    rng = np.random.default_rng(n)
    x = np.arange(n, dtype=float) ** 1.5
    y = 3 - 0.5 * x + rng.normal(0, 2, n)
    sxx = ((x - x.mean()) ** 2).sum()
    b = ((x - x.mean()) * (y - y.mean())).sum() / sxx
    residuals = y - y.mean() - b * (x - x.mean())
    half = stats.t.isf(0.025, df=n - 2) * np.sqrt((residuals**2).sum() / (n - 2) / sxx)
    missing = ([*x, 1.0, np.nan], [*y, np.nan, 1.0])
    assert slope(*missing) == pytest.approx((b, b - half, b + half))


def test_difference_of_fractions_is_newcombes() -> None:
    # Newcombe (1998), method 10, example (a): 56/70 less 48/80.
    one, other = (pd.Series([True] * k + [False] * (n - k)) for k, n in ((56, 70), (48, 80)))
    assert difference(one, other) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


@pytest.mark.parametrize(("power", "verdict"), [(-0.5, "holds"), (-0.2, "does not hold")])
def test_the_fall_with_length(power: float, verdict: str) -> None:
    wobble = noise(1)
    rows = [
        {"point_id": str(t), "realization": r, "data.length": t}
        | {f"rmse_{x}": t**power * np.exp(next(wobble)) for x in "JKL"}
        for t in (1000, 10_000, 100_000)
        for r in range(5)
    ]
    answers = found(rows, "3B, 6, 8")
    assert [one.where for one in answers] == ["J", "K", "L"]
    assert {one.verdict for one in answers} == {verdict}
    (single,) = {one.verdict for one in found(rows[::5][:2], "3B, 6, 8")}
    assert single == "not enough data"


def strengths(counts: dict[float, list[int]], runs: int = 20):
    return [
        {"point_id": f"{g} {t}", "model.strength": g, "model.connectivity": 1.0, "data.length": t, "realization": r}
        | {f"converged_{x}": r < good for x in "JKL"}
        for g, goods in counts.items()
        for t, good in zip((100, 1000, 10_000), goods, strict=True)
        for r in range(runs)
    ]  # fmt: skip


def test_weaker_couplings_need_longer_recordings() -> None:
    def verdicts(counts: dict[float, list[int]], runs: int = 20) -> set[str]:
        return {f.verdict for f in found(strengths(counts, runs), "4") if "weaker" in f.claim}

    assert verdicts({1.0: [18, 19, 19], 0.1: [0, 1, 19]}) == {"holds"}
    assert verdicts({1.0: [0, 1, 19], 0.1: [19, 19, 19]}) == {"does not hold"}
    assert verdicts({1.0: [19, 19, 19], 0.1: [18, 19, 19]}) == {"does not hold"}
    assert verdicts({1.0: [1, 3, 4], 0.1: [0, 2, 4]}, 4) == {"not enough data"}
    # Also where half of the runs converge at no length.
    assert verdicts({1.0: [7, 8, 9], 0.1: [0, 0, 0]}) == {"holds"}


def test_the_shift_is_the_area_between_the_curves() -> None:
    """Of ten networks in twenty, learning converges one decade later; at the ends a length counts half."""
    (shift,) = {
        f.measured.value
        for f in found(strengths({1.0: [0, 20, 20], 0.1: [0, 10, 20]}), "4")
        if "weaker" in f.claim
    }
    assert shift == pytest.approx(0.5)


def test_networks_of_which_none_converge_say_nothing_of_lengths() -> None:
    never = [f for f in found(strengths({1.0: [0, 0, 0], 0.1: [0, 0, 0]}), "4") if "weaker" in f.claim]
    assert {one.verdict for one in never} == {"not enough data"}
    assert np.isnan(never[0].measured.value)


def test_all_runs_converging_is_seen() -> None:
    claim = "never"
    some, every, few = (
        [one.verdict for one in found(strengths({1.0: best}, runs), "4") if claim in one.claim]
        for best, runs in (([10, 18, 19], 20), ([10, 19, 20], 20), ([1, 2, 3], 3))
    )
    assert (some, every, few) == (["holds"], ["does not hold"], ["not enough data"])


@pytest.mark.parametrize(
    ("strong", "where"),
    [([1.0], ["c = 1, g = 1"]), ([1.0, 2.0], ["c = 1, g = 1", "c = 1, g = 2"])],
)
def test_a_claim_on_dense_networks_says_where_once(strong: list[float], where: list[str]) -> None:
    rows = strengths({g: [1, 2, 3] for g in strong}, 3)
    assert [one.where for one in found(rows, "4") if "never" in one.claim] == where


def corrections(diverged: list[bool], ratio: float):
    wobble = noise(2)
    return [
        {"point_id": name, "learner.correlations": name, "realization": r}
        | {"outcome": "diverged" if bad and name == "iterated" else "converged"}
        | {f"rmse_{x}": np.exp(next(wobble)) * (ratio if name == "iterated-corrected" else 1) for x in "JKL"}
        for name in ("iterated", "iterated-corrected")
        for r, bad in enumerate(diverged)
    ]


def test_the_cure_and_what_it_does_to_errors() -> None:
    rows = corrections([True] * 8 + [False] * 2, 0.5)
    (cure,) = found(rows, "5")
    assert cure.verdict == "holds"
    assert cure.measured.value == pytest.approx(0.8)
    assert {one.verdict for one in found(rows, "6")} == {"holds"}
    assert found(rows, "6")[0].measured.value == pytest.approx(np.log(0.5), abs=0.05)
    healthy = corrections([False] * 10, 2.0)
    assert [one.verdict for one in found(healthy, "5")] == ["not enough data"]
    assert {one.verdict for one in found(healthy, "6")} == {"does not hold"}


@pytest.mark.parametrize(("power", "verdict"), [(-0.3, "holds"), (0.3, "does not hold")])
def test_the_fall_with_size(power: float, verdict: str) -> None:
    wobble = noise(3)
    rows = [
        {"point_id": str(n), "model.visible": 4 * n, "model.hidden": n, "realization": r}
        | {f"rmse_{x}": n**power * np.exp(next(wobble)) for x in "JKL"}
        for n in (5, 10, 20)
        for r in range(4)
    ]
    assert [one.verdict for one in found(rows, "7")] == [verdict] * 3
    # Where the ratio of visible to hidden changes too, the claim is about something else.
    rows[0]["model.hidden"] = 20
    assert found(rows, "7") == []


@pytest.mark.parametrize(("ratio", "verdict"), [(0.8, "holds"), (1.25, "does not hold")])
def test_belief_propagation_and_tap(ratio: float, verdict: str) -> None:
    wobble = noise(4)
    rows = [
        {"point_id": f"{e}{g}", "learner.estimator": e, "learner.correlations": c, "model.strength": g}
        | {"realization": r}
        | {f"rmse_{x}": g * np.exp(next(wobble)) * (ratio if e == "bp" else 1) for x in "JKL"}
        for e, c in (("bp", "corrected"), ("tap", None))
        for g in (0.5, 1.0)
        for r in range(4)
    ]  # fmt: skip
    answers = found(rows, "9")
    assert [one.verdict for one in answers] == [verdict] * 3
    assert answers[0].measured.value == pytest.approx(np.log(ratio), abs=0.05)


def test_learners_are_paired_with_the_same_start() -> None:
    """From `signs` bp has half the error of tap, from `random` the same; the errors of starts differ by much more."""
    rows = [
        {"point_id": f"{e}{s}", "learner.estimator": e, "learner.start": s, "realization": r}
        | {f"rmse_{x}": error * (1 + r / 100) * (0.5 if (e, s) == ("bp", "signs") else 1) for x in "JKL"}
        for e in ("bp", "tap")
        for s, error in (("signs", 1.0), ("random", 7.0))
        for r in range(4)
    ]
    for one in found(rows, "9"):
        assert one.measured.value == pytest.approx(np.log(0.5) / 2)
        assert "on 8 pairs of runs" in one.quantity
    # Where a run diverges, the run from the other start does not take its place.
    rows[0]["outcome"] = "diverged"
    for one in found(rows, "9"):
        assert one.measured.value == pytest.approx(3 / 4 * np.log(0.5) / 2)
        assert "on 7 pairs of runs" in one.quantity


@pytest.mark.parametrize(("ratio", "verdict"), [(0.8, "holds"), (1.25, "does not hold")])
def test_rules_for_pair_averages(ratio: float, verdict: str) -> None:
    wobble = noise(6)
    rows = [
        {"point_id": f"{rule}", "learner.estimator": "bp" if rule else "exact", "learner.correlations": rule}
        | {"realization": r}
        | {f"rmse_{x}": np.exp(next(wobble)) * (ratio if rule == "bounded" else 1) for x in "JKL"}
        for rule in ("corrected", "pair", "bounded", None)
        for r in range(4)
    ]  # fmt: skip
    answers = [one for one in found(rows, "kising") if "pair belief" in one.claim]
    # Against the paper's correction and against the pair belief everywhere, for three blocks each.
    assert [one.verdict for one in answers] == [verdict] * 6
    assert answers[0].measured.value == pytest.approx(np.log(ratio), abs=0.05)


def inference(overlaps, settled=lambda c, f: True, errors=lambda f: None):
    wobble = noise(5)
    return [
        {"point_id": f"{c} {v}", "task": "infer", "model.connectivity": c, "model.visible": v,
         "model.hidden": 100 - v, "realization": r, "hidden_overlap": overlaps(v / 100) + next(wobble) / 10,
         "outcome": "converged" if settled(c, r) else "stalled", "rmse_pair": errors(v / 100)}
        for c in (0.1, 1.0) for v in (20, 40, 60, 80) for r in range(20)
    ]  # fmt: skip


def test_claims_on_averages_at_the_truth() -> None:
    rising = inference(lambda f: f, settled=lambda c, r: c == 1 or r < 8, errors=lambda f: np.exp(-f))
    assert [one.verdict for one in found(rising, "2A")] == ["holds"] * 2
    assert [one.verdict for one in found(rising, "2B")] == ["holds"]
    assert [one.verdict for one in found(rising, "2C")] == ["holds"] * 2
    dented = inference(lambda f: f if f != 0.6 else 0.3)
    assert {one.verdict for one in found(dented, "2A")} == {"does not hold"}
    assert [one.verdict for one in found(dented, "2B")] == ["not enough data"]
    assert found(dented, "2C") == []


def test_runs_that_diverged_are_set_apart() -> None:
    rows = inference(lambda f: f, errors=lambda f: np.exp(-f))
    for row in rows[::20]:
        row["rmse_pair"] = 1e9
    assert [one.verdict for one in found(rows, "2C")] == ["holds"] * 2
    assert "4 of 80 runs left out" in found(rows, "2C")[0].quantity


@pytest.mark.parametrize(("ratio", "verdict"), [(0.5, "does not hold"), (1.5, "holds")])
def test_pruning_is_judged_by_what_it_does(ratio: float, verdict: str) -> None:
    wobble = noise(6)
    rows = [
        {
            "point_id": f"{t}",
            "model.bonds": "binary",
            "realization": r,
            "score.pruned": True,
            "data.length": t,
        }
        | {"model.connectivity": 0.1}
        | {f"rmse_{x}": 0.2 for x in "JKL"}
        | {f"rmse_pruned_{x}": 0.2 * ratio * np.exp(next(wobble)) for x in "JKL"}
        for t in (1000, 10_000)
        for r in range(6)
    ]
    answers = found(rows, "8")
    assert [one.verdict for one in answers] == [verdict] * 3
    assert answers[0].measured.value == pytest.approx(np.log(ratio), abs=0.05)
    assert f"{np.log(ratio):.1f}" in answers[0].quantity
    # Without zeros, with bonds of many sizes, not scored, or driven to zero already: nothing to say.
    others = (
        {"model.connectivity": 1.0},
        {"model.bonds": "gaussian"},
        {"score.pruned": False},
        {"learner.l1": 1.0},
    )
    for other in others:
        assert found([row | other for row in rows], "8") == []


@pytest.mark.parametrize(("zeros", "verdict"), [(0.0, "holds"), (2.0, "does not hold")])
def test_agreement_is_that_of_kept_couplings(zeros: float, verdict: str) -> None:
    rng = np.random.default_rng(6)
    rows, frames = [], []
    for r in range(6):
        rows.append({"run_id": f"{r:016x}", "point_id": "p", "realization": r})
        true = np.repeat([0.0, 1.0, -1.0], [50, 25, 25])
        learned = np.where(true == 0, zeros, true) + 0.05 * rng.standard_normal(100)
        frames.append(pd.DataFrame({"run_id": f"{r:016x}", "block": "J", "true": true, "learned": learned}))
    (agreement,) = found(rows, "3A", pd.concat(frames))
    assert agreement.verdict == verdict


def sparsities(penalised: float, decimated: float, connectivity: float = 0.1):
    wobble = noise(7)
    ways = {("0", 0.0, "none"): 1.0, ("1", 2.0, "none"): penalised, ("2", 0.0, "known"): decimated}
    return [
        {"point_id": f"{name} {t}", "learner.l1": l1, "learner.decimate": decimate, "data.length": t}
        | {"realization": r, "model.connectivity": connectivity}
        | {f"rmse_{x}": ratio * (1 + r) * t**-0.5 * np.exp(next(wobble)) for x in "JKL"}
        for (name, l1, decimate), ratio in ways.items()
        for t in (1000, 10_000)
        for r in range(5)
    ]


def test_penalties_and_decimation_are_compared_on_the_same_networks() -> None:
    rows = sparsities(0.8, 1.3)
    answers = found(rows, "proposed")
    assert [one.where for one in answers] == [
        *(f"l1 = 2, {x}" for x in "JKL"),
        *(f"decimate = known, {x}" for x in "JKL"),
    ]
    assert [one.verdict for one in answers] == ["holds"] * 3 + ["does not hold"] * 3
    # Networks differ by factors: only pairs of the same one tell so little apart.
    assert answers[0].measured.value == pytest.approx(np.log(0.8), abs=0.03)
    assert answers[0].measured.high - answers[0].measured.low < 0.1
    assert "10 pairs" in answers[0].quantity
    assert "-0.2" in answers[0].quantity.partition("by length")[2]
    rows[10]["outcome"] = "diverged"
    assert "9 pairs" in found(rows, "proposed")[0].quantity
    assert found(sparsities(0.8, 1.3, connectivity=1.0), "proposed") == []
    assert found(rows[10:], "proposed") == []


def test_a_sweep_that_bears_on_nothing_has_no_findings() -> None:
    assert claims(make_runs([{"model.visible": 3, "model.hidden": 1, "data.length": 10}]), NONE) == []


def rivals(
    ratio: float, lengths: tuple[int, ...] = (1000, 10_000), estimators: tuple[str, ...] = ("gibbs", "exact")
):
    wobble = iter(np.random.default_rng(7).normal(0, 0.002, 1000))
    return [
        {"point_id": f"{e}{t}", "learner.estimator": e, "data.length": t, "realization": r}
        | {
            f"rmse_{x}": np.exp(next(wobble)) * (ratio if e == "gibbs" and t == lengths[-1] else 1)
            for x in "JKL"
        }
        for e in estimators
        for t in lengths
        for r in range(5)
    ]


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.0, "holds"), (1.015, "holds"), (1.05, "does not hold"), (0.95, "does not hold")]
)
def test_samples_and_sums_are_held_together_at_the_longest_recordings(ratio: float, verdict: str) -> None:
    answers = [one for one in found(rivals(ratio), "kising") if "exact averages" in one.claim]
    assert [one.verdict for one in answers] == [verdict] * 3
    assert answers[0].measured.value == pytest.approx(np.log(ratio), abs=0.004)
    assert "on 5 pairs" in answers[0].quantity


@pytest.mark.parametrize(("ratio", "verdict"), [(0.5, "holds"), (2.0, "does not hold")])
@pytest.mark.parametrize("other", ["bp", "tap"])
def test_samples_against_what_is_approximate(ratio: float, verdict: str, other: str) -> None:
    rows = rivals(ratio, lengths=(1000,), estimators=("gibbs", other))
    answers = found(rows, "kising")
    assert {one.claim for one in answers} == {f"Learning from samples gives smaller errors than {other}."}
    assert [one.verdict for one in answers] == [verdict] * 3
    # A run that diverged has no error to compare, and its partner has nothing to be compared with.
    rows[-1]["outcome"] = "diverged"
    assert "on 4 pairs" in found(rows, "kising")[0].quantity
    # Other networks are no partners.
    for row in rows:
        if row["learner.estimator"] == "gibbs":
            row["model.hidden"] = 5
    assert found(rows, "kising") == []
