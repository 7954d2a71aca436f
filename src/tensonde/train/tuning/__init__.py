"""Hyperparameters: a script or a function tried many times, on Optuna or Ray Tune, each trial under Tensonde's eyes."""
