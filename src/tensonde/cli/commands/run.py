"""`tensonde run`: a training under Tensonde."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from tensonde.cli.annotations import annotate, check_writable
from tensonde.cli.configuration import FILE, chosen_action, from_file, watches
from tensonde.cli.options import training_options
from tensonde.cli.show.echo import echo
from tensonde.cli.show.untrained import finish_untrained, get_ready, trained
from tensonde.errors import UsageError
from tensonde.launch.dumping import check_dump, dump_of
from tensonde.launch.supervise import supervise
from tensonde.launch.target import command_line
from tensonde.session.dump.iterations import parse_iterations
from tensonde.session.options import SECONDS, GraphMode, Options, parse_budget, parse_size
from tensonde.store.claim import create_run
from tensonde.store.resolve import RUNS

log = logging.getLogger(__name__)

BLOCKING = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "HIP_LAUNCH_BLOCKING": "1",
    "ASCEND_LAUNCH_BLOCKING": "1",
    "TENSONDE_BLOCKING": "1",
}
"""What the drivers heed; devices without such a variable are synchronised after every op (see `tensonde.launch_blocking`)."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@training_options
@click.argument("target", nargs=-1, type=click.UNPROCESSED, required=True)
def run(target: tuple[str, ...], **chosen: Any) -> None:
    """Run a training under Tensonde; the script, its output and its exit code stay as they are.

    \b
    tensonde run train.py --lr 0.1
    tensonde run --watch '**:grad norm > 1e3' --on-hit stop train.py
    tensonde run --budget off --report findings.json train.py
    tensonde run --ui train.py
    tensonde run -m package.train
    tensonde run torchrun --nproc-per-node 2 train.py
    tensonde run --dump '**:out' --dump-steps 0,10-20 train.py
    """
    sys.exit(run_target(target, **chosen))


def run_target(
    target: tuple[str, ...],
    *,
    record: Path | None = None,
    report_file: str | None = None,
    sarif_file: Path | None = None,
    github: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    blocking: bool = False,
    ui: bool = False,
    **chosen: Any,
) -> int:
    """`chosen` goes to `session_options`."""
    command, script = command_line(target)
    session_options(None, **chosen)  # wrong use is heard before anything is made
    if report_file not in (None, "-"):
        check_writable(Path(report_file))
    if sarif_file is not None:
        check_writable(sarif_file, "SARIF file")
    words = list(target)
    at = words.index(script) if script in words else 0
    folder = new_run(record, {"script": script, "argv": words[at + 1 :], "launcher": words[:at]})
    hub = None
    if ui:
        from tensonde.launch.companion import CompanionHub

        hub = CompanionHub(folder.parent, lambda text: echo(text, err=True))
        if hub.address is not None:
            echo(f"tensonde: the UI is at {hub.address.link}", err=True)
    link = hub.address.link if hub is not None and hub.address is not None else ""
    options = session_options(folder, quiet=quiet, hub=link, **chosen)
    get_ready(folder)
    code = supervise(command, options, extra=BLOCKING if blocking else None, faithful=True)
    try:
        outcome = _finish(folder, code, quiet=quiet, verbose=verbose)
    except Exception as problem:  # the exit code is the script's, whatever becomes of the diagnosis
        if os.environ.get("TENSONDE_STRICT") == "1":
            raise
        log.warning("the diagnosis of %s failed", folder, exc_info=problem)
        echo(
            f"tensonde: the diagnosis failed ({type(problem).__name__}: {problem}); tensonde diagnose {folder} tries again",
            err=True,
        )
        outcome = {"exit": {"code": code, "exception": None}, "findings": []}
    if options.dump is not None and not quiet:
        from tensonde.cli.show.dumped import show_dump

        show_dump(options.dump)
    if report_file == "-":
        json.dump(outcome, sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif report_file is not None:
        Path(report_file).write_text(json.dumps(outcome, indent=2) + "\n")
    annotate(outcome, sarif_file, github)
    if hub is not None:
        hub.stay()
    return code


def _finish(folder: Path, code: int, *, quiet: bool, verbose: bool) -> dict[str, Any]:
    if not trained(folder):
        return finish_untrained(folder, code, quiet=quiet)
    from tensonde.cli.show.outcome import finish

    return finish(folder, code, quiet=quiet, verbose=verbose)


def session_options(
    folder: Path | None,
    *,
    watch_texts: tuple[str, ...] = (),
    on_hit: str | None = None,
    budget: str | None = None,
    steps: int | None = None,
    recommended: bool = True,
    quiet: bool = False,
    debug: bool = False,
    experiments: bool = True,
    save_steps: tuple[int, ...] = (),
    bundles: str = "1GB",
    graph: GraphMode = "auto",
    verify_steps: str | None = None,
    dump_sites: tuple[str, ...] = (),
    dump_steps: str | None = None,
    dump_config: Path | None = None,
    hub: str = "",
) -> Options:
    """From what a user has chosen, and tensonde.toml. Without a folder nothing is made, only checked. Raises UsageError."""
    content = from_file(Path(FILE))
    action = chosen_action(on_hit, content)
    check_dump(dump_sites, dump_steps, dump_config)
    return Options(
        run=str(folder.absolute()) if folder is not None else "",
        watches=watches(watch_texts, content, action),
        on_hit=action,
        budget=parse_budget(str(budget if budget is not None else content.get("budget", "5%"))),
        steps=steps,
        recommended=recommended and bool(content.get("recommended", True)),
        debug=debug,
        quiet=quiet,
        bundle_bytes=parse_size(bundles),
        save_steps=save_steps,
        graph=graph,
        verify_steps=parse_iterations(verify_steps, key="--verify-steps") if verify_steps is not None else None,
        experiments=SECONDS if experiments else 0.0,
        dump=dump_of(dump_sites, dump_steps, dump_config, folder) if folder is not None else None,
        hub=hub,
    )


def new_run(record: Path | None, manifest: dict[str, object]) -> Path:
    """The folder that was asked for, or a new one in `.tensonde/runs`. Where nothing can be written there, the training is
    worth more than the place of its recording: it goes to a temporary folder."""
    parent = record.parent if record is not None else RUNS
    try:
        return create_run(parent, record.name if record is not None else None, manifest)
    except (OSError, UsageError) as problem:
        why = (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem)
        if record is not None:
            if isinstance(problem, UsageError):
                raise
            raise UsageError(
                f"the recording cannot be made in {parent}: {why}; choose another place with --record."
            ) from None
        elsewhere = Path(tempfile.mkdtemp(prefix="tensonde-"))
        echo(f"tensonde: nothing can be recorded in {parent} ({why}); the recording goes to {elsewhere}", err=True)
        return create_run(elsewhere, None, manifest)
