"""Lines of cells, as the reader of a notebook counts them."""

from __future__ import annotations

from typing import Any

from tensonde.model.site import SourceLine


class Cells:
    """`text` is the cell that has just run."""

    def __init__(self, shell: Any, text: str) -> None:
        self._compile = shell.compile
        self._own = self._name_of(text)

    def _name_of(self, text: str) -> str:
        try:
            return str(self._compile.get_code_name(text, text, 0))
        except Exception:  # another front end's compiler
            return ""

    def place(self, source: SourceLine) -> str:
        """`this cell, line 5`; `In[3], line 5`; `helpers.py:5`."""
        if source.file == self._own:
            return f"this cell, line {source.line}"
        try:
            found = self._compile.format_code_name(source.file)
        except Exception:
            found = None
        return f"{found[1]}, line {source.line}" if found else str(source)
