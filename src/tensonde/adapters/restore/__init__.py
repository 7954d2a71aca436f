"""For adapters that run a step again: Python state that can be put back, and deeds that cannot. No framework is needed (docs/adr/0007)."""
