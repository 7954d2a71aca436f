"""Versions of documents, apart from their records: a training writes them and need not load those."""

FACTS = 2
"""Of facts.json (model/facts.py)."""
