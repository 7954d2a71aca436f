"""Sonde, the debugger for neural-network training.

`sonde run train.py` needs nothing of this. In a script it is optional:

    attach(model, optimizer)      names for what Sonde would otherwise have to guess
    watch("**:grad", "norm > 1e3")  the same language as on the command line
    breakpoint()                  stop here, if a debugger is attached
    view(recording)               a recording or a trace, in a notebook
    launch_blocking()             every op synchronous, so that an error surfaces at its line

Importing Sonde imports neither a framework nor the server.
"""

import sonde.watch  # noqa: F401  first the package, so that its import cannot take the function's name later
from sonde.api import attach, breakpoint, launch_blocking, view, watch
from sonde.version import __version__

__all__ = ["__version__", "attach", "breakpoint", "launch_blocking", "view", "watch"]
