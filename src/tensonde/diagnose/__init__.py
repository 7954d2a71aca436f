"""From what a run recorded to findings: which problem, where, since when, on what evidence, and what to do."""
