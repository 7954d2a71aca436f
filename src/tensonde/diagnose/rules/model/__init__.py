"""Modules: their modes, members, states, hooks and memory."""
