"""`%%tensonde`: a cell under Tensonde, with the options of `tensonde run`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from tensonde.cli.commands.run import new_run, session_options
from tensonde.cli.options import training_options
from tensonde.cli.show.outcome import finish
from tensonde.diagnose.diagnose import diagnose
from tensonde.errors import TensondeError
from tensonde.launch.companion import CompanionHub
from tensonde.launch.part import Part
from tensonde.notebook.cells import Cells
from tensonde.notebook.progress import LiveLine
from tensonde.notebook.shown import Findings
from tensonde.session.options import Options
from tensonde.session.session import StopTraining
from tensonde.store.reader import Recording

HELP = "Run this cell under Tensonde. The options are those of `tensonde run`, such as --watch, --budget, --steps, --experiments, --ui."
_MEANINGLESS = ("report_file", "sarif_file", "github", "blocking", "debug")
"""What only a command can do."""


@click.command("%%tensonde", help=HELP, add_help_option=False)
@training_options
@click.option("--help", "help_", is_flag=True, help="Show the options.")
def _line(**chosen: Any) -> dict[str, Any]:
    return chosen


def load(shell: Any) -> None:
    """The hook of `%load_ext tensonde`."""
    shell.register_magic_function(lambda line, cell: run_cell(shell, line, cell), "cell", "tensonde")


def run_cell(shell: Any, line: str, cell: str) -> Findings | None:
    """What it found is shown, and is the value of the cell; an exception of the cell is shown by the notebook, as always."""
    try:
        chosen = _chosen(line)
        if chosen is None:
            return None
        ui, record = chosen.pop("ui"), chosen.pop("record")
        session_options(None, **chosen)
        folder = new_run(record, {"script": "notebook", "argv": []})
        hub = CompanionHub(folder.parent, print) if ui else None
        options = session_options(
            folder, hub=hub.address.link if hub is not None and hub.address is not None else "", **chosen
        )
    except (click.ClickException, TensondeError) as problem:
        print(f"tensonde: {problem.format_message() if isinstance(problem, click.ClickException) else problem}")
        return None
    try:
        return _watched(shell, cell, options, folder, hub)
    finally:
        if hub is not None:
            hub.close()


def _chosen(line: str) -> dict[str, Any] | None:
    """The options; None where help was wanted, and was shown. Raises ClickException."""
    with _line.make_context("%%tensonde", shlex.split(line)) as context:
        chosen: dict[str, Any] = dict(context.params)
        if chosen.pop("help_"):
            print(_line.get_help(context))
            return None
    for name in _MEANINGLESS:
        chosen.pop(name, None)
    chosen.pop("verbose", None)
    return chosen


def _watched(shell: Any, cell: str, options: Options, folder: Path, hub: CompanionHub | None) -> Findings | None:
    line = LiveLine()
    part = Part(options, opened=lambda training: _opened(training, options, line))
    try:
        part.begin()
    except TensondeError as refused:
        print(f"tensonde: {refused} Leave the magic out: `tensonde.view()` shows what is recorded.")
        return None
    if hub is not None and hub.address is not None:
        from IPython.display import IFrame, display

        display(IFrame(hub.address.link, width="100%", height=640))
    problem: BaseException | None = None
    text = "# %%tensonde\n" + cell  # lines count as in the cell that the user sees
    try:
        result = shell.run_cell(text, store_history=False, silent=False)
        problem = result.error_before_exec or result.error_in_exec
    except StopTraining:  # --steps
        pass
    finally:
        line.end()
        part.end(None if isinstance(problem, StopTraining) else problem)
    if part.opened is None:
        print("tensonde: no training was seen in this cell: no module was called and no optimizer stepped.")
        return None
    finish(folder, 0 if problem is None or isinstance(problem, StopTraining) else 1, quiet=True)
    recording = Recording.open(folder)
    return Findings(recording, diagnose(recording), Cells(shell, text))


def _opened(training: Any, options: Options, line: LiveLine) -> None:
    if options.hub:
        from tensonde.launch.child import attach_agent

        attach_agent(training, options)
    if not options.quiet:
        line.begin(training)
