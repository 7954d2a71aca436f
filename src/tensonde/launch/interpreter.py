"""Another interpreter than this one, that a script is to run in: whether it is there, and has Tensonde."""

from __future__ import annotations

import os
import shutil
import subprocess

from tensonde.errors import UsageError
from tensonde.version import __version__

_PATIENCE = 120


def check_interpreter(python: str) -> None:
    """Raises UsageError where it cannot run a script under Tensonde."""
    if shutil.which(python) is None:
        raise UsageError(f"there is no interpreter {python}.")
    question = "import sys, tensonde, msgspec, pyarrow; print(sys.version_info >= (3, 11), tensonde.__version__)"
    try:
        done = subprocess.run(
            [python, "-c", question], capture_output=True, text=True, timeout=_PATIENCE, env={**os.environ}
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise UsageError(f"the interpreter {python} does not answer: {problem}.") from None
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 2:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UsageError(
            f"{python} cannot import Tensonde ({last}); install the same version there: pip install tensonde=={__version__}."
        )
    if words[0] != "True":
        raise UsageError(f"{python} is older than Python 3.11, which Tensonde needs.")
    if words[1] != __version__:
        raise UsageError(
            f"{python} has Tensonde {words[1]}, and this is {__version__}: install the same version there."
        )
