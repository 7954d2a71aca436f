"""Start-up file of watched processes: `tensonde run` puts its folder on PYTHONPATH, as tracers do.

Python imports it before the user's program. It takes its folder off `sys.path` again (the variable stays,
so that child processes are reached, too), starts Tensonde, and hands on to the user's own sitecustomize, if any.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _start() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    try:
        from tensonde.launch.child import start
    except ImportError as problem:
        print(
            f"tensonde: this Python ({sys.executable}) cannot import Tensonde ({problem}), so the program runs unwatched; "
            "install tensonde into its environment.",
            file=sys.stderr,
        )
    else:
        start()
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start()
