"""Cells, steps and phases of a training in PyNative mode."""
