"""What a script calls."""
