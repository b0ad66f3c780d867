"""Anderson acceleration: one longer step made of the last few.

It solves for a vanishing step, wherever that is: near a saddle of the likelihood it goes there, where EM would leave.
A start that knows nothing of the truth passes such saddles while its hidden units find their roles; steps grow as it
leaves one. It is accelerated only after steps have shrunk for `patience` iterations in a row.

Acceleration can also leap where the E-step is not smooth. Four safeguards limit it:

- the history is dropped when the scaled step has more than doubled since the iteration before;
- coefficients come from a regularised least-squares problem;
- no coupling is taken further out, beyond three bond scales, by more than ten of its own steps and a tenth of its bond
  scale: couplings which the recording does not determine are not thrown far out. Nearer to zero, where most are, this
  limit would cut the move off from the few directions in which acceleration knows its way, and cost iterations;
- no block moves in one iteration by more than its own root mean square or its bond scale, whichever is larger.
"""

import numpy as np

from kising.learning.layout import flatten, unflatten
from kising.learning.state import History
from kising.model import BondScales, Couplings

MEMORY = 5
REGULARISATION = 1e-10
GROWTH_THAT_DROPS_HISTORY = 2.0
MOST_STEPS, MOST_BEYOND = 10.0, 0.1
FAR_OUT = 3.0


def accelerate(
    couplings: Couplings, step: Couplings, history: History, scales: BondScales, *, patience: int
) -> tuple[Couplings, History]:
    """The couplings after the scaled step, extended over the last iterations once steps have shrunk for long enough."""
    x = flatten(couplings, scales)
    f = flatten(step, scales)
    size = float(np.linalg.norm(f))
    shrinking = history.shrinking + 1 if size < history.size else 0
    if size > GROWTH_THAT_DROPS_HISTORY * history.size or shrinking < patience:
        history = history.without_steps()
    points = np.vstack([history.points, x])[-MEMORY - 1 :]
    steps = np.vstack([history.steps, f])[-MEMORY - 1 :]
    move = f
    if len(steps) > 1:
        dx = np.diff(points, axis=0)
        df = np.diff(steps, axis=0)
        normal = df @ df.T
        normal[np.diag_indices(len(df))] += REGULARISATION * np.trace(normal) + np.finfo(float).tiny
        gamma = np.linalg.solve(normal, df @ f)
        move = f - gamma @ (dx + df)
        most = MOST_STEPS * np.abs(f) + MOST_BEYOND
        outwards = np.abs(x + move) > np.maximum(np.abs(x), FAR_OUT)
        move = np.where(outwards, np.clip(move, -most, most), move)
    new = within_reach(couplings, unflatten(move, couplings, scales), scales)
    return new, history._replace(points=points, steps=steps, size=size, shrinking=shrinking)


def within_reach(couplings: Couplings, move: Couplings, scales: BondScales) -> Couplings:
    """The couplings after the move, which is shortened where a block would go beyond its reach."""
    blocks = []
    for x, dx, sd in zip(couplings, move, scales, strict=True):
        if not x.size:
            blocks.append(x)
            continue
        size = np.sqrt(np.mean(dx**2))
        reach = max(np.sqrt(np.mean(x**2)), sd)
        blocks.append(x + dx * min(1.0, reach / size) if size > 0 else x + dx)
    return Couplings(*blocks)
