"""A step run again: the tape, the run, and putting everything back."""
