"""A network as the sampler of paths sees it: all spins alike, visible and hidden ones.

With z = (s, σ), the spin k at step t+1 feels H_k(t+1) = E_k + Σ_j C_kj u_j(t) + Σ_j W_kj z_j(t), where

    W = ( J  K )      E = ( h )      C = ( F )
        ( L  M )          ( b )          ( G )
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from kising.model import Array, Couplings

# e^{±2H} and products of several stay within floating point up to here; beyond, tanh is 1 to the last bit.
LARGEST_FIELD = 40.0
LARGEST_WEIGHT = 20.0


class Network(NamedTuple):
    """The couplings of all N = Nv + Nh spins."""

    weights: Array
    """W, (N, N)"""
    bias: Array
    """E, (N,)"""
    sensitivity: Array
    """C, (N, p)"""
    visible: int
    """Nv"""

    @property
    def hidden(self) -> int:
        """Nh"""
        return len(self.bias) - self.visible


def network_of(couplings: Couplings) -> Network:
    """Couplings as one matrix; blocks that are left out count as zero."""
    nv, nh = couplings.K.shape
    M = getattr(couplings, "M", np.zeros((nh, nh)))
    M = M if M.size else np.zeros((nh, nh))
    weights = np.block([[couplings.J, couplings.K], [couplings.L, M]])
    biases = [x if x.size else np.zeros(n) for x, n in ((couplings.h, nv), (couplings.b, nh))]
    return Network(
        np.ascontiguousarray(np.clip(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT)),
        np.concatenate(biases),
        np.vstack([couplings.F, couplings.G]),
        nv,
    )


def tilt(network: Network) -> npt.NDArray[np.int64]:
    """The permutation π of hidden spins with the largest Σ_a |M_π(a)a|: along a → π(a) the chains of a sweep carry what
    one hidden spin passes on to another.
    """
    M = network.weights[network.visible :, network.visible :]
    _, order = linear_sum_assignment(-np.abs(M.T))
    return np.asarray(order, np.int64)
