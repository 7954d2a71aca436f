"""What MindSpore compiles, as its own dump shows it."""
