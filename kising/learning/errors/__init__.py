"""Standard errors of learned couplings, from the observed information."""
