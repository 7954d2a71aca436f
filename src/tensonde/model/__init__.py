"""Frozen values that every layer speaks in. Standard library only."""
