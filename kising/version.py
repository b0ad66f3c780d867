"""Two versions: that of the package, stated here alone, and that of its numbers."""

__version__ = "0.1.0"
# Bump this when the same sweep gives other numbers than before, and rewrite tests/golden/values.json. A resumed sweep
# then reports the rows of older numerics instead of mixing them with new ones.
NUMERICS = 18
