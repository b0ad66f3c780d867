"""`kising bench`: measurements, as lines to print and as a file."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from threadpoolctl import threadpool_limits

from kising.bench.measure import (
    Timing,
    as_rows,
    field_cost,
    first_call,
    learning_time,
    loop_share,
    thread_scaling,
    timings,
)
from kising.bench.paths import path_sweeps
from kising.bench.sampling import exponent, growth, race
from kising.bench.strength import by_strength
from kising.sweep.store.atomic import atomic_write
from kising.version import NUMERICS, __version__

HEADER = (
    f"{'':4}{'estimator':12}{'precision':11}{'bonds':7}"
    f"{'µs/slice':>12}{'NumPy':>10}{'ratio':>8}{'ns/bond/it.':>13}"
)


def bench(path: Path, *, full: bool) -> Iterator[str]:
    """Measure everything; yield lines as they are known, and write all numbers to `path` at the end."""
    rounds = 9 if full else 3
    yield HEADER
    rows: list[Timing] = []
    # NumPy on one thread, like the kernels.
    with threadpool_limits(limits=1, user_api="blas"):
        for row in timings(rounds=rounds):
            rows.append(row)
            yield _line(row)
    threads = thread_scaling(rounds=rounds)
    yield f"two threads against one (bp, w2): {threads:.2f}x"
    fields = field_cost(rounds=rounds)
    added = ", ".join(f"{100 * share:+.1f}% ({name})" for name, share in fields.items())
    yield f"biases and two inputs add to the E-step: {added}"
    strong = by_strength(rounds=rounds)
    for estimator, what in (("bp", "bond and iteration, (80, 20)"), ("exact", "spin and state, (80, 8)")):
        costs = ", ".join(
            f"{one.strongest:g}: {one.nanoseconds:.3g} ({one.ratio:.2f}x)"
            for one in strong
            if one.estimator == estimator
        )
        yield f"{estimator}, ns per {what}, by the largest |K|: {costs}"
    first = first_call()
    yield f"first E-step of a new process, with kernels on disk: {first:.2f} s"
    learned = learning_time(visible=20, hidden=4, connectivity=1.0, length=100_000 if full else 10_000)
    yield (
        f"learning ({learned.visible}, {learned.hidden}), T = {learned.length}: {learned.seconds:.1f} s, "
        f"{learned.iterations} iterations, {learned.outcome}"
    )
    share = loop_share(length=100_000 if full else 20_000, iterations=5)
    yield f"EM beyond its E-step, (80, 8): {100 * share:.1f}% of the E-step"
    swept = growth(rounds=rounds)
    sizes = ", ".join(f"{one.hidden}: {one.microseconds:.1f}" for one in swept)
    power = exponent(swept)
    yield f"a sweep of gibbs with its gradient, {swept[0].visible} visible spins, µs/slice by hidden spins: {sizes}"
    yield f"its time grows as Nh^{power:.2f}"
    paths = path_sweeps(rounds=rounds)
    for run in paths:
        gaps = f", {100 * run.missing:.0f}% missing" if run.missing else ""
        yield (
            f"a sweep along paths ({run.visible}, {run.hidden}){gaps}, µs/step: straight {run.straight:.2f}, "
            f"tilted {run.tilted:.2f}, its gradient {run.gradient:.2f}"
        )
    raced = []
    for one in race(visible=80, hidden=8, connectivity=0.1, length=10_000 if full else 5_000):
        raced.append(one)
        yield (
            f"learning (80, 8), c = 0.1 by {one.estimator}: {one.seconds:.1f} s, {one.iterations} iterations, "
            f"{one.outcome}, RMSE J {one.rmse_J:.3f} K {one.rmse_K:.3f} L {one.rmse_L:.3f}"
        )
    record = {
        "version": __version__,
        "numerics": NUMERICS,
        "full": full,
        "estep": as_rows(rows),
        "two_threads_over_one": threads,
        "fields_over_none": fields,
        "by_strength": [asdict(one) for one in strong],
        "first_call_seconds": first,
        "learning": asdict(learned),
        "em_loop_share": share,
        "sweep": [asdict(one) for one in swept],
        "sweep_exponent": power,
        "path_sweeps": [asdict(one) for one in paths],
        "race": [asdict(one) for one in raced],
    }
    atomic_write(path, json.dumps(record, indent=1).encode() + b"\n")


def _line(row: Timing) -> str:
    return (
        f"{row.workload:4}{row.estimator:12}{row.precision:11}{row.bonds:7}"
        f"{row.microseconds:12.2f}{row.numpy_microseconds:10.1f}"
        f"{row.ratio:7.1f}x{row.nanoseconds:13.2f}"
    )
