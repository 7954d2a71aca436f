"""Trainings in tests: the pytest plugin (docs/ci.md)."""
