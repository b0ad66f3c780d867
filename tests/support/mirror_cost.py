"""What a mirror costs: runs per second of a sweep of short runs, without one and with each kind.

    cd tests && python -m support.mirror_cost

Seconds are those of the processor, of all threads of the driver: other work on the machine takes none of them. Rounds
are interleaved; a number is the median of its rounds.
"""

from __future__ import annotations

import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from kising import run_sweep
from support.s3_server import BUCKET, S3Server

ROUNDS, RUNS = 7, 600
SWEEP = {
    "name": "short",
    "task": "infer",
    "seed": 1,
    "realizations": RUNS,
    "model": {"visible": 5, "hidden": 2},
    "data": {"length": 100},
    "learner": {"estimator": "bp"},
}


def main() -> None:
    server = None
    if find_spec("obstore") and find_spec("moto"):
        server = S3Server()
        os.environ.update(server.environment)
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        run_sweep(SWEEP, out=Path(place) / "warm", in_process=True, overrides=["realizations=2"])
        for number in range(ROUNDS):
            mirrors = {"no mirror": None, "a directory": f"{place}/mirror-{number}"}
            if server is not None:
                mirrors["a bucket (moto's server on this machine)"] = f"s3://{BUCKET}/{number}"
            for name, url in mirrors.items():
                start = time.process_time()
                run_sweep(SWEEP, out=Path(place) / f"{number}-{name[:8]}", in_process=True, mirror=url)
                seconds.setdefault(name, []).append(time.process_time() - start)
    if server is not None:
        server.kill()
    for name, found in seconds.items():
        rates = sorted(RUNS / each for each in found)
        print(
            f"{name}: {median(rates):.0f} runs per CPU second ({rates[0]:.0f} to {rates[-1]:.0f}, {ROUNDS} rounds)"
        )


if __name__ == "__main__":
    main()
