"""One step as data: the tape and the state that it began with, saved, and run again in another process (docs/adr/0005)."""
