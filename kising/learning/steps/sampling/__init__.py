"""Steps along noisy gradients, of estimators that sample: of slices, of paths, and towards sparse couplings."""
