"""The parts of MindSpore that are replaced."""
