"""The terminal debugger: `console.py` is what the gate calls, `commands.py` the table of what it knows."""
