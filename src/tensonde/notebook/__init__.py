"""Tensonde in notebooks: `%load_ext tensonde`, `%%tensonde` (docs/notebooks.md)."""
