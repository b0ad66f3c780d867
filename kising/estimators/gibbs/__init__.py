"""Averages by sampling: Gibbs chains, and importance sampling of the likelihood."""
