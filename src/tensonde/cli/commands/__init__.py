"""The commands, one file each, named as the command is. `cli/main.py` has the table."""
