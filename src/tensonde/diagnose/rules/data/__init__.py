"""Batches, labels, padding and layout: what the model is given and compared with."""
