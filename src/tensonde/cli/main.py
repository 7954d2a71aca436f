"""The `tensonde` command."""

from __future__ import annotations

import sys
from typing import ClassVar, NamedTuple

import click

from tensonde.cli.show.echo import echo
from tensonde.errors import TensondeError
from tensonde.model.printable import printable
from tensonde.version import __version__


class Row(NamedTuple):
    """One command. Its file in `cli/commands` has its name."""

    name: str
    example: str
    tells: str = ""
    """The example in words, for `tensonde --help`; empty where it says enough."""


COMMANDS = (
    Row("run", "train.py --lr 0.1", "watch a training, unchanged"),
    Row("debug", "train.py", "stop before step 0, in the terminal debugger"),
    Row("check", "train.py", "two steps: does it train at all?"),
    Row("show", "", "what the newest run recorded"),
    Row("query", ". 'select * from hits'", "SQL over every digest"),
    Row("diagnose", "", "diagnose the newest run again"),
    Row("replay", "", "rerun the step that went wrong, op by op"),
    Row("compare", "RUN OTHER", "where two trainings diverge, and why"),
    Row("ckpt", "model.pt [older.pt]", "inspect a checkpoint, or diff two"),
    Row("convert", "SRC DST", "convert dumps and checkpoints"),
    Row("merge", "WHOLE NODE0 NODE1", "the ranks of several machines as one run"),
    Row("ui", "", "live and recorded runs in the browser"),
    Row("attach", "", "the terminal debugger on a training under `tensonde run --ui`"),
    Row("lr", "train.py", "the learning-rate schedule, before training"),
    Row("tune", "train.py --param lr=log:1e-5:1e-1"),
    Row("export", ". board", "export to TensorBoard, W&B, CSV, Parquet"),
    Row("mcp", "--allow-run", "tools for coding agents (MCP)"),
    Row("dap", "", "debug trainings in your editor (DAP)"),
    Row("doctor", "", "check whether everything Tensonde needs is here"),
)


def help_text() -> str:
    lines = [f"{f'tensonde {row.name} {row.example}'.strip():<39} {row.tells}".rstrip() for row in COMMANDS]
    return "\n".join(
        [
            "The debugger for neural-network training.\n",
            "\b",
            *lines,
            '\nShell completion (bash; also zsh, fish):  eval "$(_TENSONDE_COMPLETE=bash_source tensonde)"',
        ]
    )


class Lazy(click.Group):
    """Commands are imported when they are called for: `tensonde run` must not pay for DuckDB."""

    commands_by_name: ClassVar[dict[str, str]] = {row.name: f"tensonde.cli.commands.{row.name}" for row in COMMANDS}
    """The module of each; its click command is called as the command is, or `<name>_command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_by_name)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        where = self.commands_by_name.get(name)
        if where is None:
            return None
        from importlib import import_module

        module = import_module(where)
        command: click.Command = getattr(module, f"{name}_command", None) or getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands_by_name:
            import difflib

            close = difflib.get_close_matches(args[0], self.commands_by_name, 1)
            hint = f"did you mean `tensonde {close[0]}`?" if close else "see `tensonde --help`."
            if args[0].endswith(".py"):
                hint = f"did you mean `tensonde run {args[0]}`?"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=Lazy, help=help_text(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tensonde")
def cli() -> None:
    pass


def main() -> None:
    """Wrong use is one sentence and exit code 2."""
    try:
        from tensonde.log import set_up_log

        set_up_log(strict=True)
        cli.main(prog_name="tensonde", standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except (click.Abort, KeyboardInterrupt):  # the second one while commands are being imported
        sys.exit(130)
    except click.ClickException as problem:
        problem.message = printable(problem.message)  # type: ignore[misc]
        problem.show()
        sys.exit(2)
    except TensondeError as problem:
        echo(f"tensonde: {problem}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as problem:
        from tensonde.store.damage import reason, shortened

        click.echo(f"tensonde: {shortened(problem.filename or 'a file')} cannot be used: {reason(problem)}.", err=True)
        sys.exit(2)
