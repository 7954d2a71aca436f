"""Compiled code: the graphs that AOTAutograd makes of it, watched, named, recorded, run node by node."""
