"""Steps towards couplings of which many are zero: a penalty, or a known number of bonds."""
