"""Exceptions and crashes that end a training."""
