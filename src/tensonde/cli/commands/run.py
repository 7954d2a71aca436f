"""`tensonde run`: a training under Tensonde."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from tensonde.cli.configuration import FILE, chosen_action, from_file, watches
from tensonde.cli.options import training_options
from tensonde.cli.show.dumped import show_dump
from tensonde.cli.show.echo import echo
from tensonde.cli.show.outcome import finish
from tensonde.errors import UsageError
from tensonde.launch.dumping import check_dump, dump_of
from tensonde.launch.supervise import supervise
from tensonde.launch.target import command_line
from tensonde.session.dump.iterations import parse_iterations
from tensonde.session.options import GraphMode, Options, parse_budget, parse_size
from tensonde.store.claim import create_run
from tensonde.store.resolve import RUNS

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
    watch_texts: tuple[str, ...] = (),
    on_hit: str | None = None,
    budget: str | None = None,
    record: Path | None = None,
    report_file: str | None = None,
    steps: int | None = None,
    recommended: bool = True,
    quiet: bool = False,
    debug: bool = False,
    verbose: bool = False,
    blocking: bool = False,
    save_steps: tuple[int, ...] = (),
    bundles: str = "1GB",
    graph: GraphMode = "auto",
    verify_steps: str | None = None,
    dump_sites: tuple[str, ...] = (),
    dump_steps: str | None = None,
    dump_config: Path | None = None,
    ui: bool = False,
) -> int:
    command, script = command_line(target)
    content = from_file(Path(FILE))
    action = chosen_action(on_hit, content)
    share = parse_budget(str(budget if budget is not None else content.get("budget", "5%")))
    points = watches(watch_texts, content, action)
    if report_file not in (None, "-"):
        check_writable(Path(report_file))
    verified = parse_iterations(verify_steps, key="--verify-steps") if verify_steps is not None else None
    check_dump(dump_sites, dump_steps, dump_config)
    folder = new_run(record, {"script": script, "argv": list(target[1:])})
    hub = None
    if ui:
        from tensonde.cli.hub import CompanionHub

        hub = CompanionHub(folder.parent)
    options = Options(
        run=str(folder.absolute()),
        watches=points,
        on_hit=action,
        budget=share,
        steps=steps,
        recommended=recommended and bool(content.get("recommended", True)),
        debug=debug,
        quiet=quiet,
        bundle_bytes=parse_size(bundles),
        save_steps=save_steps,
        graph=graph,
        verify_steps=verified,
        dump=dump_of(dump_sites, dump_steps, dump_config, folder),
        hub=hub.address.link if hub is not None and hub.address is not None else "",
    )
    code = supervise(command, options, extra=BLOCKING if blocking else None, faithful=True)
    outcome = finish(folder, code, quiet=quiet, verbose=verbose)
    if options.dump is not None and not quiet:
        show_dump(options.dump)
    if report_file == "-":
        json.dump(outcome, sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif report_file is not None:
        Path(report_file).write_text(json.dumps(outcome, indent=2) + "\n")
    if hub is not None:
        hub.stay()
    return code


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


def check_writable(path: Path) -> None:
    """Better to hear it before a training of hours than after."""
    if path.is_dir():
        raise UsageError(f"the report cannot be written to {path}: it is a folder.")
    if not path.parent.is_dir():
        raise UsageError(f"the report cannot be written to {path}: the folder {path.parent} does not exist.")
