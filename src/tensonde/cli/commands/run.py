"""`tensonde run`: a training under Tensonde."""

from __future__ import annotations

import json
import logging
import os
import shutil
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
from tensonde.launch.joining import Place, join_or_create, launcher_id
from tensonde.launch.supervise import supervise
from tensonde.launch.target import command_line
from tensonde.session.dump.iterations import parse_iterations
from tensonde.session.options import SECONDS, GraphMode, Options, parse_budget, parse_size
from tensonde.store.claim import create_run
from tensonde.store.remote import Upload, open_store, url_of
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
    """Run a training under Tensonde. The script, its output and its exit code do not change.

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
    record, upload_to = _local(record)
    words = list(target)
    at = words.index(script) if script in words else 0
    manifest: dict[str, object] = {"script": script, "argv": words[at + 1 :], "launcher": words[:at]}
    place = new_place(record, manifest, launcher_id(target))
    folder = place.folder
    upload = _upload(place, upload_to)
    hub = None
    if ui:
        from tensonde.launch.companion import CompanionHub
        from tensonde.session.agent import run_id

        hub = CompanionHub(folder.parent, lambda text: echo(text, err=True))
        if hub.address is not None:
            echo(f"tensonde: the UI is at {hub.address.link_to(run_id(folder))}", err=True)
    link = hub.address.link if hub is not None and hub.address is not None else ""
    options = session_options(folder, quiet=quiet, hub=link, **chosen)
    get_ready(folder)
    code = supervise(command, options, extra=BLOCKING if blocking else None, faithful=True, watch_ranks=place.is_first)
    try:
        outcome = _finish(place, code, quiet=quiet, verbose=verbose)
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
    if upload is not None and upload.end() and not quiet:
        echo(f"tensonde: the recording is at {upload.url}", err=True)
    if hub is not None:
        hub.stay()
    return code


def _finish(place: Place, code: int, *, quiet: bool, verbose: bool) -> dict[str, Any]:
    folder = place.folder
    if not place.is_first:
        place.ended(code)
        if not quiet:
            echo(
                f"tensonde: this part of the training is recorded in {folder}, with the others of {place.name}",
                err=True,
            )
        return {"exit": {"code": code, "exception": None}, "findings": []}
    code = place.wait_for_others(code)
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
    experiments: bool | None = None,
    save_steps: tuple[int, ...] = (),
    bundles: str = "1GB",
    keep: str = "512MB",
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
        table_bytes=parse_size(keep),
        save_steps=save_steps,
        graph=graph,
        verify_steps=parse_iterations(verify_steps, key="--verify-steps") if verify_steps is not None else None,
        experiments=0.0 if experiments is False else SECONDS,
        experiments_by_default=experiments is None,
        dump=dump_of(dump_sites, dump_steps, dump_config, folder) if folder is not None else None,
        hub=hub,
    )


def _local(record: Path | None) -> tuple[Path | None, str | None]:
    """Where the recording is written, and where it is uploaded to. Raises UsageError."""
    url = url_of(record) if record is not None else None
    if record is None or url is None:
        return record, None
    open_store(url)
    return RUNS / record.name, url


def _upload(place: Place, url: str | None) -> Upload | None:
    """One upload per run: that of the command that has made it."""
    if url is None or not place.is_first:
        return None
    try:
        return Upload(place.folder, url, lambda text: echo(f"tensonde: {text}", err=True))
    except UsageError:
        shutil.rmtree(place.folder, ignore_errors=True)  # nothing is in it yet
        raise


def new_run(record: Path | None, manifest: dict[str, object]) -> Path:
    """As `new_place`, for a program that no launcher has started."""
    return new_place(record, manifest).folder


def new_place(record: Path | None, manifest: dict[str, object], launcher: str | None = None) -> Place:
    """The folder that was asked for, or a new one in `.tensonde/runs`; with a launcher's id, that of the training's other commands. Where
    nothing can be written there, the training is worth more than the place of its recording: it goes to a temporary folder."""
    parent = record.parent if record is not None else RUNS
    name = record.name if record is not None else None
    try:
        if launcher is not None:
            return join_or_create(parent, name, manifest, launcher)
        return Place(create_run(parent, name, manifest))
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
        return Place(create_run(elsewhere, None, manifest))
