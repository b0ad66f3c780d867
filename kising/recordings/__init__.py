"""Recordings in all the forms people have, turned into checked segments of ±1 spins."""

from kising.recordings.build import as_segments
from kising.recordings.files.reading import read_recording
from kising.recordings.segments import Segments, fittable

__all__ = ["Segments", "as_segments", "fittable", "read_recording"]
