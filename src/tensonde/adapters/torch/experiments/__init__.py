"""The torch side of experiments: a step as a graph of ops that can be computed again with changes."""
