"""What `tensonde.view` gives to a notebook: the page in a frame of its own, so that neither's style touches the other."""

from __future__ import annotations

from html import escape
from pathlib import Path

from tensonde.errors import UsageError
from tensonde.model.trace import Trace
from tensonde.store.reader import Recording


class View:
    """Shown by Jupyter through `_repr_html_`; elsewhere its text says how to see it. `html` is the page; `save` writes it."""

    def __init__(self, what: str, html: str, height: int) -> None:
        self._what, self.html, self._height = what, html, height

    def _repr_html_(self) -> str:
        page = escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:{self._height}px;border:0" sandbox title="{escape(self._what)}"></iframe>'

    def __repr__(self) -> str:
        return f"<tensonde.view of {self._what}; a notebook shows it, .save('report.html') writes it>"

    def save(self, path: str | Path) -> Path:
        written = Path(path)
        written.write_text(self.html, encoding="utf-8")
        return written


def view(thing: object = ".", *, height: int = 640) -> View:
    """A recording (its path, its name, or opened), a trace, or what `tensonde.inspect` gave. Raises UsageError for anything else."""
    from tensonde.page.call import call_report
    from tensonde.page.page import report

    thing = getattr(thing, "trace", thing)  # an inspection
    if isinstance(thing, Trace):
        return View(f"step {thing.step}", call_report(thing), height)
    if isinstance(thing, (str, Path)):
        thing = Recording.open(thing)
    if isinstance(thing, Recording):
        return View(thing.name, report(thing), height)
    raise UsageError(
        f"view takes a recording, its path, a trace or an inspection, and was given a {type(thing).__name__}."
    )
