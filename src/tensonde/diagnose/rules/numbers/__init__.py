"""NaN, Inf, precision and scale: where numbers go wrong."""
