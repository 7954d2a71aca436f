"""Whole tensors, handed to the dump."""
