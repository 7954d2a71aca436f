"""What a script's code can change when Tensonde runs it a second time, and how it all comes back (docs/adr/0007)."""
