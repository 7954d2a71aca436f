"""The command line: one file a command. `child.py` is what runs inside a watched process, and stays light."""
