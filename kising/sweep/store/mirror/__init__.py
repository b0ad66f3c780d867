"""A copy of a sweep's directory elsewhere, from which another machine can continue."""
