"""Ways to go about a training that is wrong, for an agent that has these tools."""

from __future__ import annotations

_END = "Say which line is at fault and why, from the evidence in the answers. Change that line only, and run again to see the finding gone."


def why_nan(script: str = "train.py") -> str:
    """Why is my loss NaN?"""
    return (
        f"The training in {script} gives NaN or Inf. Find the line that makes it.\n"
        f"1. run_script(script={script!r}): the first finding names the op that made the first bad value, and its line.\n"
        "2. node(name=the finding's site without ':out'): what went into that op. A finite input that the op cannot take (log of 0, 0/0, "
        "overflow in half precision) makes that line the cause; an input that is bad already has its cause before it.\n"
        "3. If the values grew for many steps before: digests(site='loss:value') and digests(site='**:grad') show from where.\n"
        "4. replay: the step again, if a closer look is needed.\n" + _END
    )


def why_not_learning(script: str = "train.py") -> str:
    """Why does it not learn?"""
    return (
        f"The training in {script} runs but does not learn. Find out why.\n"
        f"1. check_script(script={script!r}): does every parameter get a gradient and change, is it better than a constant, does every input matter?\n"
        f"2. run_script(script={script!r}, experiments=true): findings over a whole training.\n"
        "3. show_run, then digests of the loss, of gradients ('**:grad') and parameters: which ones are zero, constant or tiny?\n"
        "4. query, for anything that needs all steps at once.\n" + _END
    )


def port_differs(reference: str = "reference.py", port: str = "port.py") -> str:
    """My port differs from the original."""
    return (
        f"{port} is meant to train as {reference} does, and does not. Find the first difference.\n"
        f"1. run_script(script={reference!r}) and run_script(script={port!r}), with the same number of steps.\n"
        "2. compare_runs(one=the first run, other=the second): data, initial weights, forward, backward or optimizer, and the first site.\n"
        "3. If it is data or initial weights, make those equal first: everything after them differs for that reason.\n"
        "4. node, in both runs, at that site: arguments and statistics side by side.\n" + _END
    )


PROMPTS = (why_nan, why_not_learning, port_differs)
