"""A dump on disk: whole tensors, written while the training runs (docs/dump.md)."""
