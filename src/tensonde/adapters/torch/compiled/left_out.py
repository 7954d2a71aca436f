"""Dynamo compiles none of Tensonde's own frames.

After a graph break in a compiled function, dynamo looks at every frame that begins, ours among them: our wrappers around
`backward` would be compiled, with `is_dynamo_compiling()` true in them, and all that they call would follow. A wrapper
that a compiled function calls is still read through, as any function of the user's is.
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import CodeType
from typing import Any

import tensonde.version
from tensonde.adapters.torch import seams

_OURS = str(Path(tensonde.__file__).parent) + "/"


def leave_out(trace_rules: Any) -> None:
    """`trace_rules` is dynamo's module, just imported."""
    original = trace_rules.check

    @functools.wraps(original)
    def check(obj: Any, *args: Any, **kwargs: Any) -> Any:
        inlined = args[0] if args else kwargs.get("is_inlined_call", False)
        if not inlined and isinstance(obj, CodeType) and obj.co_filename.startswith(_OURS):
            return True
        return original(obj, *args, **kwargs)

    seams.put(trace_rules, "check", check, "keep the compiler from reading our frames")
