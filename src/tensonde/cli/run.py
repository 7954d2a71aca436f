"""`tensonde run`: a training under Tensonde."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tensonde.cli.configuration import FILE, chosen_action, from_file, watches
from tensonde.cli.dumping import check_dump, dump_of, told
from tensonde.cli.outcome import finish
from tensonde.cli.supervise import supervise
from tensonde.cli.target import command_line
from tensonde.errors import UsageError
from tensonde.session.dump.iterations import parse_iterations
from tensonde.session.options import GraphMode, Options, parse_budget, parse_size
from tensonde.store.claim import create_run

BLOCKING = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "HIP_LAUNCH_BLOCKING": "1",
    "ASCEND_LAUNCH_BLOCKING": "1",
    "TENSONDE_BLOCKING": "1",
}
"""What the drivers heed; devices without such a variable are synchronised after every op (see `tensonde.launch_blocking`)."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--watch",
    "watch_texts",
    multiple=True,
    metavar="'SITE CONDITION'",
    help="Report where a condition holds; repeatable.",
)
@click.option("--on-hit", type=click.Choice(["report", "stop", "pause"]), help="What a hit does (default: report).")
@click.option(
    "--budget",
    metavar="5%|off|0",
    help="Share of the step time that Tensonde may take (default 5%); off: everything at every step; 0: sentinel only.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the recording goes (default: .tensonde/runs/<name>).",
)
@click.option("--report", "report_file", metavar="FILE.json", help="Findings as JSON; - is standard output.")
@click.option("--ui", is_flag=True, help="Start a hub, or join the one that runs, and print its URL.")
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Stop cleanly after N optimizer steps.")
@click.option(
    "--dump",
    "dump_sites",
    multiple=True,
    metavar="SITE",
    help="Keep whole tensors: a site pattern, a type or a name; repeatable.",
)
@click.option("--dump-steps", metavar="0,10-20", help="Steps to dump (default: all).")
@click.option(
    "--dump-config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="What to dump, in MindSpore's JSON; also TENSONDE_DUMP_CONFIG, MINDSPORE_DUMP_CONFIG.",
)
@click.option("--no-recommended", is_flag=True, help="Only your own watchpoints.")
@click.option("-q", "--quiet", is_flag=True, help="No summary, no lines about hits; the recording has them.")
@click.option("-v", "--verbose", is_flag=True, help="All findings in full.")
@click.option(
    "--blocking", is_flag=True, help="Synchronous mode: an error of an accelerator surfaces at the line that caused it."
)
@click.option(
    "--save-step",
    "save_steps",
    multiple=True,
    type=click.IntRange(0),
    metavar="N",
    help="Save step N as a bundle for `tensonde replay`, whatever happens in it; repeatable.",
)
@click.option(
    "--bundles",
    metavar="1GB|off",
    default="1GB",
    help="The largest bundle that a step which went wrong is saved to (default 1GB).",
)
@click.option(
    "--graph",
    type=click.Choice(["auto", "nodes", "full", "exact"]),
    default="auto",
    show_default=True,
    help="What torch.compile's graphs digest by themselves: nodes watched by name, every node (NaN, Inf, absmax), "
    "every node with min, max and norm, or nothing.",
)
@click.option("--exact", "graph", flag_value="exact", help="Short for --graph exact: compiled code stays as it is.")
@click.option(
    "--verify-steps",
    metavar="0,100-110",
    help="Steps in which every call of a compiled graph is compared with the graph uncompiled, or `all` "
    "(default: the first call of each graph).",
)
@click.argument("target", nargs=-1, type=click.UNPROCESSED, required=True)
def run(
    watch_texts: tuple[str, ...],
    on_hit: str | None,
    budget: str | None,
    record: Path | None,
    report_file: str | None,
    ui: bool,
    steps: int | None,
    dump_sites: tuple[str, ...],
    dump_steps: str | None,
    dump_config: Path | None,
    no_recommended: bool,
    quiet: bool,
    verbose: bool,
    blocking: bool,
    save_steps: tuple[int, ...],
    bundles: str,
    graph: GraphMode,
    verify_steps: str | None,
    target: tuple[str, ...],
) -> None:
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
    code = run_target(
        target, watch_texts=watch_texts, on_hit=on_hit, budget=budget, record=record, report_file=report_file,
        steps=steps, recommended=not no_recommended, quiet=quiet, verbose=verbose, blocking=blocking, ui=ui,
        save_steps=save_steps, bundles=bundles,
        graph=graph, verify_steps=verify_steps,
        dump_sites=dump_sites, dump_steps=dump_steps, dump_config=dump_config,
    )  # fmt: skip
    sys.exit(code)


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
    parent, name = (record.parent, record.name) if record is not None else (Path(".tensonde") / "runs", None)
    try:
        folder = create_run(parent, name, {"script": script, "argv": list(target[1:])})
    except OSError as problem:
        raise UsageError(
            f"the recording cannot be made in {parent}: {problem.strerror}; choose another with --record."
        ) from None
    hub = None
    if ui:
        from tensonde.cli.hub import CompanionHub

        hub = CompanionHub(parent)
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
    code = supervise(command, options, extra=BLOCKING if blocking else None)
    outcome = finish(folder, code, quiet=quiet, verbose=verbose)
    if options.dump is not None and not quiet:
        told(options.dump)
    if report_file == "-":
        json.dump(outcome, sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif report_file is not None:
        Path(report_file).write_text(json.dumps(outcome, indent=2) + "\n")
    if hub is not None:
        hub.stay()
    return code


def check_writable(path: Path) -> None:
    """Better to hear it before a training of hours than after."""
    if path.is_dir():
        raise UsageError(f"the report cannot be written to {path}: it is a folder.")
    if not path.parent.is_dir():
        raise UsageError(f"the report cannot be written to {path}: the folder {path.parent} does not exist.")
