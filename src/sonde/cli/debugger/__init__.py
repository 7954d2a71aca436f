"""The terminal debugger: `console.py` is what the gate calls, `commands.py` the table of everything that it understands."""
