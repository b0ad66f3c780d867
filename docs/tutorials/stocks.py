"""Do hidden units explain daily stock returns? Makes every number and figure of stocks.md.

    python3 -m pip install '.[examples]' && python3 docs/tutorials/stocks.py

Figures go beside this file, or into the folder that is given as argument.
"""

import os
import sys
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from skfolio.datasets import load_sp500_dataset, load_sp500_index

import kising
from kising.errors import RecordingWarning

mpl.use("Agg")
import matplotlib.pyplot as plt  # after the choice of a backend without windows

SECTORS = {
    "technology": ["AAPL", "MSFT", "AMD"],
    "banks": ["BAC", "JPM"],
    "energy": ["CVX", "XOM", "RRC"],
    "retail": ["BBY", "HD", "WMT"],
    "industry": ["GE"],
    "staples": ["KO", "PEP", "PG"],
    "health": ["JNJ", "LLY", "MRK", "PFE", "UNH"],
}
STOCKS = [stock for stocks in SECTORS.values() for stock in stocks]
SECTOR = {stock: sector for sector, stocks in SECTORS.items() for stock in stocks}
HIDDEN = (0, 1, 2, 4)
FOLDS = 5
SEED = 1
STARTS = 10  # of the fit whose couplings are shown
SHUFFLES = 40  # of the control without hidden units
COIN = -len(STOCKS) * np.log(2)
THREADS = os.cpu_count() or 1
# Maximum likelihood: where there is no coupling, z is then a normal number. A prior would make it smaller.
HOW = {"prior": "none", "max_iterations": 2000}
BLUE, ORANGE, GREY = "#2563a8", "#d97706", "#6b7280"


def signs(prices: pd.DataFrame, ties: str) -> pd.DataFrame:
    """+1 for days on which a price rose, -1 for days on which it fell; unchanged prices by ties: 'coin' or 'down'."""
    change = np.sign(prices.diff().iloc[1:])
    coins = np.random.default_rng(SEED).choice([-1.0, 1.0], change.shape)
    return change.where(change != 0, coins if ties == "coin" else -1.0).astype(np.int8)


def learn(recording: object, hidden: int, *, errors: bool = False) -> kising.Fit:
    """A fit with biases: the same options throughout."""
    starts = 5 if hidden else 1  # without hidden spins there is one maximum
    with warnings.catch_warnings():
        # Segments of 3 days have fewer steps than spins, on purpose.
        warnings.simplefilter("ignore", RecordingWarning)
        fit = kising.fit(recording, hidden, seed=SEED, starts=starts, errors=errors, threads=THREADS, **HOW)
    if fit.outcome != "converged":
        raise SystemExit(f"the fit with {hidden} hidden spins ended as {fit.outcome}")
    return fit


def shuffled(days: np.ndarray, seed: list[int]) -> np.ndarray:
    """Segments (a random day, another random day, day t): the order of days carries no information."""
    rng = np.random.default_rng(seed)
    before = rng.integers(0, len(days), (2, len(days)))
    return np.stack([days[before[0]], days[before[1]], days], axis=1)


def memoryless(days: np.ndarray, hidden: int, seed: list[int]) -> kising.Fit:
    """K, h and b alone. J and L of a fit to shuffled days are noise, and are set to zero."""
    fit = learn(shuffled(days, seed), hidden)
    couplings = fit.couplings
    return replace(fit, couplings=couplings._replace(J=0 * couplings.J, L=0 * couplings.L))


def held_out(spins: pd.DataFrame) -> pd.DataFrame:
    """Both scores of all models on every fold, nats per day."""
    days = spins.to_numpy()
    bounds = np.linspace(0, len(days), FOLDS + 1).astype(int)
    rows = []
    for fold, (start, stop) in enumerate(pairwise(bounds)):
        train = [part for part in (days[:start], days[stop:]) if len(part)]
        test = days[start:stop]
        pooled = np.concatenate(train)
        years = f"{spins.index[start].year}-{spins.index[stop - 1].year}"
        for hidden in HIDDEN:
            models = {"full": learn(train, hidden)}
            if hidden:
                models["memoryless"] = memoryless(pooled, hidden, [SEED, fold, hidden])
            for model, fit in models.items():
                scores = (fit.log_likelihood(test), fit.forecast_log_likelihood(test))
                rows.append((fold, years, model, hidden, *scores))
        up = np.mean(pooled > 0, axis=0)
        biases = np.mean(np.sum(np.log(np.where(test[2:] > 0, up, 1 - up)), axis=1))
        rows.append((fold, years, "memoryless", 0, biases, biases))
    return pd.DataFrame(rows, columns=["fold", "years", "model", "hidden", "joint", "forecast"])


def mean_and_error(values: pd.Series) -> str:
    """Mean and standard error over folds."""
    return f"{values.mean():+.3f} ± {values.sem():.3f}"


def print_scores(scores: pd.DataFrame, n_days: int) -> None:
    """Scores above a coin, and the paired difference of the two models."""
    above = scores.assign(joint=scores["joint"] - COIN, forecast=scores["forecast"] - COIN)
    by = above.set_index(["model", "hidden", "fold"]).sort_index()
    print(f"\nHeld-out nats per day above a coin ({COIN:.3f}), mean ± standard error over {FOLDS} folds\n")
    print(f"{'Nh':>3}{'joint':>18}{'joint, memoryless':>22}{'forecast':>18}{'forecast, memoryless':>24}")
    for hidden in HIDDEN:
        full, without = by.loc["full", hidden], by.loc["memoryless", hidden]
        print(
            f"{hidden:>3}{mean_and_error(full.joint):>18}{mean_and_error(without.joint):>22}"
            f"{mean_and_error(full.forecast):>18}{mean_and_error(without.forecast):>24}"
        )
    print("\nDifferences in the joint score, fold by fold, mean ± standard error\n")
    base = by.loc["full", 0].joint
    for low, high in ((0, 1), (1, 2), (2, 4), (0, 4)):
        gain = by.loc["full", high].joint - by.loc["full", low].joint
        print(f"  Nh = {high} above Nh = {low}:             {mean_and_error(gain)}")
    print(f"  memoryless 4 above Nh = 0:       {mean_and_error(by.loc['memoryless', 4].joint - base)}")
    memory = by.loc["full", 4].joint - by.loc["memoryless", 4].joint
    print(f"  Nh = 4 above memoryless 4:       {mean_and_error(memory)}")
    days = n_days * (FOLDS - 1) / FOLDS
    for couplings, name in ((400, "J, Nh = 0"), (480, "J and L, Nh = 4")):
        print(
            f"  to expect where {couplings} couplings ({name}) are zero in truth: {-couplings / (2 * days):+.3f}"
        )
    print("\nJoint score above a coin in each fold, Nh = 4\n")
    years = scores.drop_duplicates("fold").set_index("fold")["years"]
    for fold, value in by.loc["full", 4].joint.items():
        print(f"  {years[fold]}   {value:.2f}")


def print_couplings(fit: kising.Fit, signs_of_units: np.ndarray) -> None:
    """Loadings of every stock on the hidden units, with standard errors."""
    assert fit.standard_error is not None
    K, error = fit.couplings.K * signs_of_units, fit.standard_error.K
    print("\nK of the fit to all days, Nh = 4; standard errors in brackets\n")
    print(f"{'':18}" + "".join(f"{f'hidden {a}':>14}" for a in range(K.shape[1])))
    for stock, row, uncertain in zip(STOCKS, K, error, strict=True):
        cells = "".join(f"{f'{k:.2f} ({e:.2f})':>14}" for k, e in zip(row, uncertain, strict=True))
        print(f"{SECTOR[stock]:<12}{stock:<6}{cells}")


def likeliest(spins: pd.DataFrame, hidden: int) -> kising.Fit:
    """The best of several fits from random starts, with standard errors; prints where all of them ended."""
    fits = [kising.fit(spins, hidden, seed=seed, threads=THREADS, **HOW) for seed in range(STARTS)]
    fits.sort(key=lambda fit: -fit.training_log_likelihood)
    best = fits[0]
    maxima: dict[int, list[kising.Fit]] = {}
    for fit in fits:
        below = (best.training_log_likelihood - fit.training_log_likelihood) * (len(spins) - 2)
        maxima.setdefault(round(below), []).append(fit)
    print(f"\nMaxima of the likelihood that random starts lead to, Nh = {hidden}\n")
    for below, found in maxima.items():
        cosines = "  ".join(f"{cosine:.2f}" for cosine in alike(best.couplings.K, found[0].couplings.K))
        print(
            f"  {below:>3} nats below the best: {len(found)} of {STARTS} starts; cosines of K with the best: {cosines}"
        )
    return best.with_errors(spins)


def alike(K: np.ndarray, other: np.ndarray) -> np.ndarray:
    """|Cosine| of each column of K with the column of the other that it is matched to."""
    unit, other_unit = K / np.linalg.norm(K, axis=0), other / np.linalg.norm(other, axis=0)
    cosines = np.abs(unit.T @ other_unit)
    return cosines[linear_sum_assignment(-cosines)]


def surviving(fit: kising.Fit, block: str) -> set[tuple[str, str]]:
    """Targets and sources of the couplings of a block with q < 0.1."""
    edges = fit.edges()
    edges = edges[(edges["block"] == block) & edges["q"].lt(0.1)]
    return set(zip(edges["target"], edges["source"], strict=True))


def mean_square(fit: kising.Fit) -> float:
    """The mean of z² over all J: 1 where they are zero and their errors are right."""
    assert fit.standard_error is not None
    return float(np.mean((fit.couplings.J / fit.standard_error.J) ** 2))


def print_edges(spins: pd.DataFrame, whole: dict[int, kising.Fit]) -> None:
    """How many couplings survive q < 0.1, beside a control without memory."""
    print("\nCouplings with q < 0.1, of all in their block\n")
    print(f"{'':24}{'J':>12}{'L':>12}{'K':>12}{'mean z² of J':>16}")
    for hidden, fit in whole.items():
        control = learn(shuffled(spins.to_numpy(), [SEED, hidden]), hidden, errors=True)
        for name, one in {"days in order": fit, "days shuffled": control}.items():
            sizes = {block: getattr(one.couplings, block).size for block in "JLK"}
            cells = [f"{len(surviving(one, block))} of {n}" if n else "-" for block, n in sizes.items()]
            print(
                f"Nh = {hidden}, {name:<16}"
                + "".join(f"{x:>12}" for x in cells)
                + f"{mean_square(one):>16.2f}"
            )
    means = [
        mean_square(learn(shuffled(spins.to_numpy(), [SEED, 0, k]), 0, errors=True)) for k in range(SHUFFLES)
    ]
    reached = np.sum(np.array(means) >= mean_square(whole[0]))
    print(f"\nMean z² of J, Nh = 0, in {SHUFFLES} shuffles: {np.mean(means):.2f} on average;")
    print(f"  {reached} of {SHUFFLES} reach that of the days in order")
    half = len(spins) // 2
    first, second = (learn(part, 4, errors=True) for part in (spins[:half], spins[half:]))
    found, again = surviving(first, "J"), surviving(second, "J")
    correlation = np.corrcoef(first.couplings.J.ravel(), second.couplings.J.ravel())[0, 1]
    print("\nNh = 4, fitted to each half of the days: couplings J with q < 0.1")
    print(f"  first half {len(found)}, second half {len(again)}, both {len(found & again)}")
    print(f"  correlation of the 400 couplings between the halves: {correlation:.2f}")


def print_ties(prices: pd.DataFrame) -> None:
    """What happens to the visible-only model when unchanged prices count as falls."""
    change = prices.diff().iloc[1:]
    early = change.index.year < 1997
    unchanged = change == 0
    print(
        f"\nUnchanged prices: {unchanged.to_numpy().mean():.1%} of all, {unchanged[early].to_numpy().mean():.1%} "
        f"before 1997, {unchanged[~early].to_numpy().mean():.1%} since"
    )
    print("Nh = 0, couplings J with q < 0.1, by what an unchanged price counts as\n")
    for ties in ("coin", "down"):
        found = surviving(learn(signs(prices, ties), 0, errors=True), "J")
        listed = ", ".join(f"{target} <- {source}" for target, source in sorted(found))
        print(f"  {ties:<6}{len(found)} of 400  {listed}".rstrip())
    print(f"  (unchanged prices of RRC: {unchanged['RRC'].mean():.1%})")


def print_market(spins: pd.DataFrame, fit: kising.Fit) -> None:
    """The one hidden unit beside the index, which the fit has not seen."""
    sign = np.sign(np.sum(fit.couplings.K))
    unit = sign * np.asarray(fit.hidden_states(spins))[:, 0]  # row k shows in the prices of day k+2
    index = np.sign(load_sp500_index()["SP500"].diff()).reindex(spins.index).to_numpy()[2:]
    expected = sign * np.tanh(fit.couplings.b + spins.to_numpy()[:-2] @ fit.couplings.L.T)[:, 0]
    print("\nNh = 1: days on which the S&P 500 index moved as the hidden unit says\n")
    print(f"  hidden unit inferred with the day's prices: {np.mean(np.sign(unit) == index):.1%}")
    print(f"  hidden unit expected before the day:        {np.mean(np.sign(expected) == index):.1%}")
    print(f"  always up:                                  {np.mean(index > 0):.1%}")


def draw_scores(scores: pd.DataFrame, path: Path) -> None:
    """Both scores against the number of hidden units."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for axis, score in zip(axes, ("joint", "forecast"), strict=True):
        for model, color, shift in (("full", BLUE, -0.04), ("memoryless", ORANGE, 0.04)):
            chosen = scores[scores["model"] == model]
            table = (chosen.set_index("hidden")[score] - COIN).groupby("hidden").agg(["mean", "sem"])
            label = "J, K, L, h, b" if model == "full" else "K, h, b (memoryless)"
            axis.errorbar(
                table.index + shift,
                table["mean"],
                table["sem"],
                fmt="o-",
                color=color,
                label=label,
                capsize=2,
            )
        axis.axhline(0, color=GREY, lw=1, ls="--")
        axis.set(xlabel="hidden units", xticks=HIDDEN, title=f"{score} score")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("held-out nats per day above a coin")
    axes[0].legend(frameon=False, loc=(0.38, 0.18))
    axes[1].text(3, -0.001, "coin", color=GREY, ha="center", va="top")
    figure.savefig(path / "stocks-scores.png", dpi=110)


def draw_loadings(fit: kising.Fit, signs_of_units: np.ndarray, path: Path) -> None:
    """K as a picture, stocks by sector."""
    K = fit.couplings.K * signs_of_units
    figure, axis = plt.subplots(figsize=(4.2, 5.6), layout="constrained")
    picture = axis.imshow(K, cmap="RdBu_r", vmin=-1.1, vmax=1.1, aspect="auto")
    axis.set(xticks=range(K.shape[1]), xlabel="hidden unit")
    axis.set_yticks(range(len(STOCKS)), [f"{SECTOR[stock]}  {stock}" for stock in STOCKS])
    for border in np.cumsum([len(stocks) for stocks in SECTORS.values()])[:-1]:
        axis.axhline(border - 0.5, color="white", lw=2)
    axis.tick_params(length=0)
    figure.colorbar(picture, label="K: how the hidden unit acts on the stock", shrink=0.6)
    figure.savefig(path / "stocks-loadings.png", dpi=110)


def main(path: Path) -> None:
    """Everything, in the order of the page."""
    prices = load_sp500_dataset()[STOCKS]
    spins = signs(prices, "coin")
    print(
        f"{spins.shape[1]} stocks, {len(spins)} days, {spins.index[0]:%Y-%m-%d} to {spins.index[-1]:%Y-%m-%d}"
    )
    print_ties(prices)
    scores = held_out(spins)
    print_scores(scores, len(spins))
    draw_scores(scores, path)
    whole = {hidden: learn(spins, hidden, errors=True) for hidden in HIDDEN if hidden < 4}
    print_market(spins, whole[1])
    whole[4] = likeliest(spins, 4)
    # Flipping a hidden unit changes nothing: most loadings are made positive.
    signs_of_units = np.sign(np.sum(whole[4].couplings.K, axis=0))
    print_couplings(whole[4], signs_of_units)
    draw_loadings(whole[4], signs_of_units, path)
    print_edges(spins, whole)
    print()
    print(whole[4].summary())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
