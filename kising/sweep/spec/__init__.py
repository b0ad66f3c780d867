"""From a sweep file to a checked spec."""

from kising.errors import SpecError
from kising.sweep.spec.axes import Axis
from kising.sweep.spec.documents import Problem
from kising.sweep.spec.reading import SweepSpec, dump_spec, parse_spec, read_spec
from kising.sweep.spec.recording import recording_of

__all__ = [
    "Axis",
    "Problem",
    "SpecError",
    "SweepSpec",
    "dump_spec",
    "parse_spec",
    "read_spec",
    "recording_of",
]
