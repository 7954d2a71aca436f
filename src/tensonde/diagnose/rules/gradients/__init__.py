"""Gradients that do not arrive, vanish, or are thrown away."""
