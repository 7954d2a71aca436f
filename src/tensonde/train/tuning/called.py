"""Runs a function as a trial: `python -m tensonde.train.tuning.called train.py:objective --lr 0.1`.

Values that look like numbers come as numbers; what the function returns, if it is a number, is the trial's value.
"""

from __future__ import annotations

import runpy
import sys

from tensonde.api import report
from tensonde.model.reported import RETURNED
from tensonde.train.tuning.space import number


def main(words: list[str]) -> None:
    path, _, name = words[0].rpartition(":")
    arguments = {key.lstrip("-"): number(value) for key, value in zip(words[1::2], words[2::2], strict=True)}
    sys.argv[:] = [path]
    function = runpy.run_path(path, run_name="tensonde_tuned").get(name)
    if not callable(function):
        sys.exit(f"{path} has no function {name!r}")
    result = function(**arguments)
    if result is not None:
        report(RETURNED, float(result))


if __name__ == "__main__":
    main(sys.argv[1:])
