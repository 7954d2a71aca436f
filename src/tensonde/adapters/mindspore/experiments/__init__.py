"""Experiments on MindSpore: a pass is taken down op by op, and its ops are computed again with changes."""
