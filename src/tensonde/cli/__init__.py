"""The command line: `commands/` has one file per command, `show/` prints, the rest are their helpers."""
