"""The `tensonde` command."""

from __future__ import annotations

import sys
from typing import ClassVar

import click

from tensonde.cli.echo import echo
from tensonde.errors import TensondeError
from tensonde.model.printable import printable
from tensonde.version import __version__


class Lazy(click.Group):
    """Commands are imported when they are called for: `tensonde run` must not pay for DuckDB."""

    commands_by_name: ClassVar[dict[str, str]] = {
        "run": "tensonde.cli.run:run",
        "debug": "tensonde.cli.debug:debug",
        "check": "tensonde.cli.check:check",
        "show": "tensonde.cli.show:show",
        "query": "tensonde.cli.query:query",
        "diagnose": "tensonde.cli.diagnose:diagnose_command",
        "replay": "tensonde.cli.replay:replay",
        "tune": "tensonde.cli.tune:tune_command",
        "lr": "tensonde.cli.lr:lr",
        "export": "tensonde.cli.export:export",
        "compare": "tensonde.cli.compare:compare",
        "convert": "tensonde.cli.convert:convert_command",
        "ckpt": "tensonde.cli.ckpt:ckpt",
        "ui": "tensonde.cli.ui:ui",
        "attach": "tensonde.cli.attach:attach",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_by_name)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        where = self.commands_by_name.get(name)
        if where is None:
            return None
        from importlib import import_module

        module, _, attribute = where.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
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


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tensonde")
def cli() -> None:
    """The debugger for neural-network training.

    \b
    tensonde run train.py --lr 0.1          watch a training, unchanged
    tensonde debug train.py                 stop before step 0, in the terminal debugger
    tensonde check train.py                 two steps: does it train at all?
    tensonde show                           what the newest run recorded
    tensonde query . 'select * from hits'   SQL over every digest
    tensonde replay                         run the step that went wrong again, op by op
    tensonde compare RUN OTHER              where two trainings part, and why
    tensonde ckpt model.pt [older.pt]       inspect a checkpoint, or diff two
    tensonde convert SRC DST                dumps and checkpoints between formats
    tensonde ui                             live and recorded runs in the browser
    tensonde attach                         the terminal debugger on a training under `tensonde run --ui`
    tensonde lr train.py                    the learning-rate schedule, before training
    tensonde tune train.py --param lr=log:1e-5:1e-1
    tensonde export . board                 for TensorBoard, W&B, CSV, Parquet

    Shell completion (bash; also zsh, fish):  eval "$(_TENSONDE_COMPLETE=bash_source tensonde)"
    """


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
