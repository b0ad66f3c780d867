"""How much is sampled at given couplings, by estimators that sample."""

from dataclasses import dataclass

from kising.errors import InputError
from kising.seeds import Seed

#: Sweeps are averaged in this many batches, whose scatter gives the error.
BATCHES = 8


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How averages are sampled at given couplings."""

    sweeps: int = 200
    """sweeps that are averaged over"""
    settling: int = 20
    """sweeps before them, which are not averaged"""
    draws: int = 256
    """draws of importance sampling, for the likelihood"""
    seed: Seed | None = None
    """of every random number; there is no default"""

    def __post_init__(self) -> None:
        if self.sweeps < BATCHES or self.settling < 0 or self.draws < 2:
            raise InputError(
                f"sweeps={self.sweeps}, settling={self.settling}, draws={self.draws}: at least {BATCHES}, 0 and 2"
            )

    @classmethod
    def brief(cls, seed: Seed | None = None) -> "Sampling":
        """Enough to score learned couplings and to compare likelihoods, not to publish averages."""
        return cls(sweeps=40, draws=64, seed=seed)

    def checked_seed(self) -> Seed:
        """The seed, or an InputError where it is missing."""
        if self.seed is None:
            raise InputError(
                "seed: give a number; this estimator draws random numbers, and nothing is random without a seed"
            )
        return self.seed
