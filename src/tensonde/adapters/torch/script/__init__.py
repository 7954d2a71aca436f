"""Functions that a script calls by itself."""
