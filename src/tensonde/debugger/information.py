"""What is known: the module tree, status, lists of things, and help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from itertools import islice

from tensonde.debugger import breakpoints, watchpoints
from tensonde.debugger.address import as_site
from tensonde.debugger.context import Context
from tensonde.debugger.control import nothing
from tensonde.debugger.header import hit_line
from tensonde.debugger.numbers import kind_of, many
from tensonde.debugger.table import Command, pick
from tensonde.debugger.terminal import Piece
from tensonde.errors import UsageError
from tensonde.session.inspector import ModuleNode
from tensonde.watch.pattern import Pattern

MOST = 200


def tree(context: Context, argument: str) -> None:
    nodes = context.inspector.modules()
    if not nodes:
        raise UsageError("no module was called yet; the tree is known when the first forward pass begins.")
    chosen = [node for node in nodes if not argument or _fits(node.name, argument)]
    if not chosen:
        raise UsageError(f"no module matches {argument!r}; `tree` shows all of them.")
    rows: list[list[Piece]] = []
    for node in chosen[:MOST]:
        name = node.name if argument or node.depth == 0 else "  " * node.depth + node.name.rpartition(".")[2]
        rows.append(
            [
                (name, "site"),
                node.type,
                many(node.parameters) if node.parameters else "",
                (_marks(node), "code"),
            ]
        )
    context.terminal.table(rows, titles=("module", "type", "parameters", ""))
    if len(chosen) > MOST:
        context.terminal.text(f"… and {len(chosen) - MOST} more; `tree PATTERN` narrows it")


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")


def _marks(node: ModuleNode) -> str:
    marks = [] if node.training else ["eval"]
    if node.parameters and not node.trainable:
        marks.append("frozen")
    elif node.trainable < node.parameters:
        marks.append(f"partly frozen ({many(node.trainable)} trainable)")
    return ", ".join(marks)


def status(context: Context, argument: str) -> None:
    nothing(argument, "status")
    session = context.session
    facts = {
        **context.inspector.facts(),
        "breakpoints": str(len(context.gate.breakpoints)),
        "watchpoints": str(len(session.engine.watchpoints)),
        "hits": str(session.hit_count),
    }
    show_facts(context, facts)


def show_facts(context: Context, facts: Mapping[str, str]) -> None:
    rows: list[list[Piece]] = [[(name, "dim"), value] for name, value in facts.items()]
    context.terminal.table(rows)


def info(context: Context, argument: str) -> None:
    word, _, rest = argument.partition(" ")
    if not word:
        raise UsageError(f"info about what? It may be {', '.join(TOPICS)}.")
    TOPICS[pick(word, tuple(TOPICS), "info")](context, rest.strip())


def sites(context: Context, pattern: str) -> None:
    addresses = context.inspector.addresses()
    if pattern:
        wanted = Pattern.parse(pattern)
        addresses = [a for a in addresses if (site := as_site(a)) is not None and wanted.matches(site)]
    known = {site.address: site for site in context.session.sites}
    rows: list[list[Piece]] = []
    for address in islice(addresses, MOST):
        site = known.get(address)
        rows.append(
            [
                (address, "site"),
                kind_of(site.dtype, site.shape) + (f" on {site.device}" if site.device else "") if site else "",
                (str(site.source or "") if site else "", "dim"),
            ]
        )
    if not rows:
        raise UsageError(f"no site that was seen matches {pattern!r}." if pattern else "no site was seen yet.")
    context.terminal.table(rows)
    if len(addresses) > MOST:
        context.terminal.text(f"… and {len(addresses) - MOST} more; `info sites PATTERN` narrows it")


def hits(context: Context, argument: str) -> None:
    session = context.session
    if not session.hits:
        context.terminal.text("there were no hits")
        return
    for hit in session.hits:
        context.terminal.line("  ", *hit_line(hit))
    if session.hit_count > len(session.hits):
        context.terminal.text(f"these are the latest of {session.hit_count}; all are in the recording")


def optimizers(context: Context, argument: str) -> None:
    found = context.inspector.optimizers()
    if not found:
        context.terminal.text("there is no optimizer so far")
    for node in found:
        context.terminal.line((node.type, "title"))
        rows = [
            [f"group {k}", ", ".join(f"{name}={value}" for name, value in group.items())]
            for k, group in enumerate(node.groups)
        ]
        context.terminal.table(rows)
        if node.missing:
            shown = ", ".join(node.missing[:5]) + (
                f" and {len(node.missing) - 5} more" if len(node.missing) > 5 else ""
            )
            context.terminal.line(("  trainable, but in no optimizer: ", "bad"), shown)


def overhead(context: Context, argument: str) -> None:
    policy = context.session.policy
    everything = "off (everything at every step)"
    percent = (policy.ratio - 1) * 100
    facts = {
        "budget": everything if policy.budget is None else f"{policy.budget:.0%} of the step time",
        "measured": f"{percent:.1f} % over {policy.counted} steps (steps with stops do not count)",
        **{f"{level.name.lower()} steps": str(count) for level, count in policy.taken.items()},
    }
    show_facts(context, facts)


TOPICS: dict[str, Callable[[Context, str], None]] = {
    "breakpoints": lambda context, _: breakpoints.show(context),
    "watchpoints": lambda context, _: watchpoints.show(context),
    "hits": hits,
    "sites": sites,
    "optimizers": optimizers,
    "overhead": overhead,
}


def help_(context: Context, argument: str) -> None:
    terminal = context.terminal
    if not argument:
        for group, commands in context.table.groups.items():
            terminal.line((group, "title"))
            terminal.table([[(command.synopsis, "site"), command.summary] for command in commands])
        terminal.text(
            "Names may be shortened, `;` separates commands, an empty line repeats. `help COMMAND` tells more."
        )
        return
    command = context.table.find(argument.split()[0])
    terminal.line((command.synopsis, "title"))
    terminal.text(f"  {command.summary}.")
    if command.detail:
        terminal.text(f"  {command.detail}")
    if command.aliases:
        terminal.text(f"  Also: {', '.join(command.aliases)}")
    if command.example:
        terminal.line("  For example: ", (command.example, "code"))


COMMANDS = (
    Command(
        name="tree", usage="[PATTERN]", aliases=("t",), run=tree, completes="sites",
        summary="the modules with their types and parameter counts, marking those in eval mode or frozen",
        example="tree blocks.0",
    ),
    Command(
        name="status", run=status, summary="step, epoch, speed, overhead, rank, and the number of breakpoints, watchpoints and hits",
    ),
    Command(
        name="info", usage="TOPIC", aliases=("i",), run=info, completes="words", words=tuple(TOPICS),
        summary="lists: " + ", ".join(TOPICS),
        detail="`info sites PATTERN` narrows the list of sites.",
        example="info sites blocks.*:grad",
    ),
    Command(
        name="help", usage="[COMMAND]", aliases=("h", "?"), run=help_, completes="commands",
        summary="all commands, or one of them in full",
        example="help break",
    ),
)  # fmt: skip
