"""Digests of modules, parameters and tensors on devices."""
