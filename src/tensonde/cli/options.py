"""The options of a training under Tensonde: the same for `tensonde run` and `tensonde debug`, named as `run_target` takes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tensonde.cli.annotations import GITHUB, SARIF

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--watch",
        "watch_texts",
        multiple=True,
        metavar="'SITE CONDITION'",
        help="Report where a condition holds; repeatable.",
    ),
    click.option(
        "--on-hit",
        type=click.Choice(["report", "stop", "pause"]),
        help="What a hit does (default: report; in `debug`: pause).",
    ),
    click.option(
        "--budget",
        metavar="5%|off|0",
        help="Share of the step time that Tensonde may take (default 5%; in `debug`: off); off: everything at every step; 0: only the sentinel.",
    ),
    click.option(
        "--record",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Where the recording goes (default: .tensonde/runs/<name>); it is uploaded to a URL such as s3://bucket/name.",
    ),
    click.option("--report", "report_file", metavar="FILE.json", help="Findings as JSON; - is standard output."),
    SARIF,
    GITHUB,
    click.option(
        "--ui",
        is_flag=True,
        help="Start a hub, or join your running one, and print its URL; `debug` is then controlled from the hub, not this terminal.",
    ),
    click.option("--steps", type=click.IntRange(1), metavar="N", help="Stop cleanly after N optimizer steps."),
    click.option(
        "--dump",
        "dump_sites",
        multiple=True,
        metavar="SITE",
        help="Keep whole tensors: a site pattern, a type or a name; repeatable.",
    ),
    click.option("--dump-steps", metavar="0,10-20", help="Steps to dump (default: all)."),
    click.option(
        "--dump-config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE.json",
        help="What to dump, in MindSpore's JSON; also TENSONDE_DUMP_CONFIG, MINDSPORE_DUMP_CONFIG.",
    ),
    click.option(
        "--no-recommended",
        "recommended",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Use only your own watchpoints.",
    ),
    click.option(
        "-q", "--quiet", is_flag=True, help="Print no summary and no lines about hits; the recording has them."
    ),
    click.option("-v", "--verbose", is_flag=True, help="Print all findings in full."),
    click.option(
        "--blocking",
        is_flag=True,
        help="Synchronous mode: an accelerator error appears at the line that caused it.",
    ),
    click.option(
        "--experiments/--no-experiments",
        default=None,
        help="Ask questions of a few steps by recomputing them with one thing changed. Takes at most 2 s of a short run. On by default for PyTorch.",
    ),
    click.option(
        "--save-step",
        "save_steps",
        multiple=True,
        type=click.IntRange(0),
        metavar="N",
        help="Save step N as a bundle for `tensonde replay`, whatever happens in it; repeatable.",
    ),
    click.option(
        "--bundles",
        metavar="1GB|off",
        default="1GB",
        help="Size limit of the bundle that a bad step is saved in (default 1GB).",
    ),
    click.option(
        "--keep",
        metavar="512MB|off",
        default="512MB",
        help="Disk space for the statistics and scalars of one process (default 512MB). In a long run, older steps are kept in less detail.",
    ),
    click.option(
        "--graph",
        type=click.Choice(["auto", "nodes", "full", "exact"]),
        default="auto",
        show_default=True,
        help="What the graphs of torch.compile digest: nodes watched by name, every node (NaN, Inf, absmax), "
        "every node with min, max and norm, or nothing.",
    ),
    click.option("--exact", "graph", flag_value="exact", help="Short for --graph exact: compiled code is not changed."),
    click.option(
        "--verify-steps",
        metavar="0,100-110",
        help="Steps in which every call of a compiled graph is compared with the uncompiled graph, or `all` "
        "(default: the first call of each graph).",
    ),
)


def training_options(command: Command) -> Command:
    """In the order in which `--help` shows them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
