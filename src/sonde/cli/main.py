"""The `sonde` command."""

from __future__ import annotations

import sys
from typing import ClassVar

import click

from sonde.errors import SondeError
from sonde.version import __version__


class Lazy(click.Group):
    """Commands are imported when they are called for: `sonde run` must not pay for DuckDB."""

    commands_by_name: ClassVar[dict[str, str]] = {
        "run": "sonde.cli.run:run",
        "debug": "sonde.cli.debug:debug",
        "check": "sonde.cli.check:check",
        "show": "sonde.cli.show:show",
        "query": "sonde.cli.query:query",
        "diagnose": "sonde.cli.diagnose:diagnose_command",
        "replay": "sonde.cli.replay:replay",
        "tune": "sonde.cli.tune:tune_command",
        "lr": "sonde.cli.lr:lr",
        "export": "sonde.cli.export:export",
        "compare": "sonde.cli.compare:compare",
        "convert": "sonde.cli.convert:convert_command",
        "ckpt": "sonde.cli.ckpt:ckpt",
        "ui": "sonde.cli.ui:ui",
        "attach": "sonde.cli.attach:attach",
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
            hint = f"did you mean `sonde {close[0]}`?" if close else "see `sonde --help`."
            if args[0].endswith(".py"):
                hint = f"did you mean `sonde run {args[0]}`?"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sonde")
def cli() -> None:
    """The debugger for neural-network training.

    \b
    sonde run train.py --lr 0.1          watch a training, unchanged
    sonde debug train.py                 stop before step 0, in the terminal debugger
    sonde check train.py                 two steps: does it train at all?
    sonde show                           what the newest run recorded
    sonde query . 'select * from hits'   SQL over every digest
    sonde replay                         run the step that went wrong again, op by op
    sonde compare RUN OTHER              where two trainings part, and why
    sonde ckpt model.pt [older.pt]       inspect a checkpoint, or diff two
    sonde convert SRC DST                dumps and checkpoints between formats
    sonde ui                             live and recorded runs in the browser
    sonde attach                         the terminal debugger on a training under `sonde run --ui`
    sonde lr train.py                    the learning-rate schedule, before training
    sonde tune train.py --param lr=log:1e-5:1e-1
    sonde export . board                 for TensorBoard, W&B, CSV, Parquet

    Shell completion (bash; also zsh, fish):  eval "$(_SONDE_COMPLETE=bash_source sonde)"
    """


def main() -> None:
    """Wrong use is one sentence and exit code 2."""
    try:
        from sonde.log import set_up_log

        set_up_log(strict=True)
        cli.main(prog_name="sonde", standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as problem:
        problem.show()
        sys.exit(2)
    except SondeError as problem:
        click.echo(f"sonde: {problem}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
