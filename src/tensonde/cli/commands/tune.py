"""`tensonde tune`: hyperparameters of a script that stays as it is."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensonde.cli.show.echo import echo
from tensonde.model.documents import version_of

if TYPE_CHECKING:
    from tensonde.train.tuning.settings import Settings

SAMPLERS = ("tpe", "random", "gp", "cmaes", "brute")
PRUNERS = ("median", "hyperband", "halving", "none")


@click.command("tune")
@click.argument("target", nargs=-1, type=click.UNPROCESSED, required=True)
@click.option(
    "--param", "params", multiple=True, metavar="NAME=SPACE", help="A parameter, passed to the script as --NAME VALUE."
)
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=SPACE", help="A parameter, passed as an environment variable."
)
@click.option("--metric", default="loss", show_default=True, help="What to minimize or maximize.")
@click.option("--metric-from", "pattern", default="", metavar="REGEX", help="Take the metric from the script's output.")
@click.option(
    "--reduce",
    default="mean:10",
    show_default=True,
    metavar="last|min|max|mean:N",
    help="How to turn the metric's values into one.",
)
@click.option("--direction", type=click.Choice(["minimize", "maximize"]), help="Default: from the metric's name.")
@click.option(
    "--trials", type=click.IntRange(1), default=20, show_default=True, help="How many trials in the study, in total."
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Trials to run at a time.")
@click.option(
    "--study",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The study's folder (default: .tensonde/studies/<script>).",
)
@click.option("--sampler", type=click.Choice(SAMPLERS), default="tpe", show_default=True)
@click.option("--pruner", type=click.Choice(PRUNERS), default="median", show_default=True)
@click.option("--seed", type=int, help="Makes the study try the same values again.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Start no trial after this time.")
@click.option("--engine", type=click.Choice(["optuna", "ray"]), default="optuna", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the trials as JSON.")
def tune_command(
    target: tuple[str, ...],
    params: tuple[str, ...],
    variables: tuple[str, ...],
    metric: str,
    pattern: str,
    reduce: str,
    direction: str | None,
    trials: int,
    jobs: int,
    study: Path | None,
    sampler: str,
    pruner: str,
    seed: int | None,
    timeout: float | None,
    engine: str,
    as_json: bool,
) -> None:
    """Try hyperparameter values, each trial under Tensonde. A trial that reaches NaN or is broken ends early, with the cause.

    SPACE is log:LO:HI, float:LO:HI, int:LO:HI[:STEP], logint:LO:HI or choice:A,B. The script's own fixed arguments come
    after --; {NAME} in them is replaced by the parameter's value. To tune a function, pass FILE.py:FUNCTION.
    The same command resumes a study that was stopped.

    \b
    tensonde tune train.py --param lr=log:1e-5:1e-1 --param batch=choice:32,64 --trials 40 --jobs 2
    tensonde tune train.py --env LR=log:1e-4:1 --metric accuracy --metric-from 'accuracy: ([0-9.]+)'
    tensonde tune train.py --param lr=log:1e-4:1 -- --epochs 3 --set optimizer.lr={lr}
    tensonde tune train.py:objective --param lr=log:1e-4:1 --trials 10
    """
    settings = _settings(target, params, variables, metric, pattern, reduce, direction)
    folder = study or Path(".tensonde") / "studies" / Path(target[0].partition(":")[0]).stem
    from tensonde.train.tuning.study import open_study

    opened = open_study(folder, settings, sampler=sampler, pruner=pruner, seed=seed)
    _announce(settings, folder, engine)
    interrupted = 0
    signal.signal(signal.SIGTERM, _terminated)
    try:
        if engine == "ray":
            from tensonde.train.tuning.ray_tune import optimise_on_ray

            optimise_on_ray(
                opened, settings, folder, trials=trials, jobs=jobs, told=_Line(opened, settings), prune=pruner != "none",
                seed=seed,
            )  # fmt: skip
        else:
            from tensonde.train.tuning.engine import optimise

            with _Status(settings.metric.name, trials) as status:
                optimise(
                    opened, settings, folder, trials=trials, jobs=jobs, told=_Line(opened, settings), shown=status.show,
                    timeout=timeout,
                )  # fmt: skip
    except KeyboardInterrupt as problem:
        interrupted = signal.SIGTERM if isinstance(problem, _Terminated) else signal.SIGINT
        echo("tensonde: interrupted; the same command goes on from here", err=True)
    _finish(opened, settings, folder, as_json)
    if interrupted:
        sys.exit(128 + interrupted)


class _Terminated(KeyboardInterrupt):
    """By SIGTERM."""


def _terminated(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one is not waited for
    raise _Terminated


def _settings(
    target: tuple[str, ...], params: tuple[str, ...], variables: tuple[str, ...], metric: str, pattern: str, reduce: str,
    direction: str | None,
) -> Settings:  # fmt: skip
    from tensonde.errors import UsageError
    from tensonde.launch.target import check_syntax, command_line
    from tensonde.train.improvement import direction as natural
    from tensonde.train.tuning.metric import Metric
    from tensonde.train.tuning.settings import Settings
    from tensonde.train.tuning.space import Parameter

    path, colon, function = target[0].rpartition(":")
    if colon and path.endswith(".py"):
        if not Path(path).is_file():
            raise UsageError(f"there is no script {path!r} here.")
        check_syntax(Path(path))
        if not function.isidentifier():
            raise UsageError(f"{target[0]!r} names no function; write {path}:FUNCTION.")
    else:
        if not target[0].endswith(".py"):
            raise UsageError(f"tensonde tune takes a Python script or FILE.py:FUNCTION, and {target[0]!r} was given.")
        command_line(target[:1])
    space = [Parameter.parse(text) for text in params] + [Parameter.parse(text, environment=True) for text in variables]
    if not space:
        raise UsageError("no parameter was given; say e.g. --param lr=log:1e-5:1e-1.")
    names = [parameter.name for parameter in space]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UsageError(f"the parameter {twice.pop()!r} was given twice.")
    wanted = direction or {"min": "minimize", "max": "maximize"}[natural(metric)]
    return Settings(target, tuple(space), Metric(metric, reduce, pattern, wanted))


def _announce(settings: Settings, folder: Path, engine: str) -> None:
    space = ", ".join(map(str, settings.parameters))
    echo(
        f"tensonde: {settings.metric.direction} {settings.metric.name} over {space} ({engine}); study {folder}",
        err=True,
    )


class _Line:
    """One line for each trial that has ended."""

    def __init__(self, study: Any, settings: Settings) -> None:
        self.study, self.metric = study, settings.metric.name
        self.broken = 0

    def __call__(self, trial: Any, outcome: Any) -> None:
        from tensonde.errors import UsageError
        from tensonde.train.tuning.space import short

        values = " ".join(f"{name}={short(value)}" for name, value in trial.params.items())
        if outcome.state == "complete":
            best = self.study.best_trial.number == trial.number
            text = f"{self.metric} {outcome.value:.6g}" + ("  (best so far)" if best else "")
        else:
            text = f"{outcome.state}: {outcome.finding}" if outcome.finding else outcome.state
        echo(f"trial {trial.number:>3}  {outcome.seconds:6.1f} s  {values}  {text}", err=True)
        if outcome.state == "failed":
            self.broken += 1
            finished = [t for t in self.study.get_trials(deepcopy=False) if t.state.is_finished()]
            if self.broken >= 3 and self.broken == len(finished):
                raise UsageError(
                    f"the first {self.broken} trials all failed ({outcome.finding}); mend the script or its arguments first."
                )
        else:
            self.broken = -(10**9)


class _Status:
    """What runs now, in a line of its own below the others; on a terminal only."""

    def __init__(self, metric: str, trials: int) -> None:
        self.metric, self.trials = metric, trials
        self._line: Any = None

    def __enter__(self) -> _Status:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.status import Status

            self._line = Status("", console=Console(stderr=True))
            self._line.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        if self._line is not None:
            self._line.stop()

    def show(self, done: int, running: list[tuple[int, Any]]) -> None:
        if self._line is None:
            return
        parts = [f"{done} of {self.trials} done"]
        for number, process in running:
            at = f", step {process.latest[0]} {self.metric} {process.latest[1]:.4g}" if process.latest else ""
            parts.append(f"trial {number}: {process.seconds:.0f} s{at}")
        self._line.update("  ".join(parts))


def _finish(study: Any, settings: Settings, folder: Path, as_json: bool) -> None:
    from tensonde.cli.show.screen import console, print_json, table
    from tensonde.train.tuning.report import facts, write_page
    from tensonde.train.tuning.space import short
    from tensonde.train.tuning.study import database

    found = facts(study, settings, folder)
    page = write_page(study, settings, folder)
    if as_json:
        print_json({"schema": version_of("trials"), **found})
        return
    names = [parameter.name for parameter in settings.parameters]
    rows = []
    for trial in found["trials"][:10]:
        value = f"{trial['value']:.6g}" if trial["value"] is not None else trial["state"]
        rows.append(
            (str(trial["number"]), value, *(short(trial["params"].get(n, "")) for n in names), trial["finding"])
        )
    console().print(table(("trial", settings.metric.name, *names, "finding"), rows, right=("trial",)))
    if len(found["trials"]) > 10:
        echo(f"and {len(found['trials']) - 10} more")
    if page is not None:
        echo(f"tensonde: plots in {os.path.relpath(page)}; dashboard: optuna-dashboard {database(folder)}", err=True)
