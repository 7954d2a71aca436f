"""Losses, optimizers, schedules and hyperparameters."""
