"""Tools that start programs: run, check and replay. Only with `--allow-run`, only scripts of the folder, only for a bounded time."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import IO, Annotated, Any, Literal

from pydantic import Field

from tensonde.errors import UsageError
from tensonde.mcp import commands, hints
from tensonde.mcp.answer import Answer
from tensonde.mcp.bench import Bench
from tensonde.mcp.reading import Reading
from tensonde.store.claim import default_name
from tensonde.store.resolve import RUNS

Seconds = Annotated[float, Field(gt=0, le=3600, description="the program is ended after so long")]
Arguments = Annotated[list[str] | None, Field(description="the script's own arguments")]
Script = Annotated[str, Field(description="path of the script, inside the server's folder")]
CONNECT_SECONDS = 60.0
LINES = 20


@dataclass(slots=True)
class Started:
    process: subprocess.Popen[bytes]
    out: IO[bytes]


class Programs:
    def __init__(self, bench: Bench, reading: Reading) -> None:
        self._bench, self._reading = bench, reading
        self._started: dict[str, Started] = {}
        self._lock = threading.Lock()

    def run_script(
        self,
        script: Script,
        args: Arguments = None,
        steps: Annotated[int | None, Field(ge=1, description="end it cleanly after so many optimizer steps")] = None,
        timeout: Seconds = 120,
        watch: Annotated[list[str] | None, Field(description="watchpoints, such as '**:grad norm > 1e3'")] = None,
        experiments: Annotated[
            bool, Field(description="also ask a few steps what happens if one thing changes")
        ] = False,
        every_step: Annotated[bool, Field(description="digest everything at every step, at any cost")] = False,
    ) -> Answer:
        """Run a training script under Tensonde until it ends, and diagnose it: findings first, the most likely cause at the top, with the line to change. The training computes what it computes without Tensonde."""
        name, words = self._words(script, steps, watch, experiments=experiments, every_step=every_step)
        done = self._ended(name, [*words, str(self._bench.inside(script, "script")), *(args or [])], timeout)
        answer = self._reading.findings(run=name)
        stopped = {"stopped": f"after {timeout:g} s, as asked"} if done.timed_out else {}
        answer.beside |= {**stopped, "output": _last_lines(done.out)}
        return answer

    def start_script(
        self,
        script: Script,
        args: Arguments = None,
        watch: Annotated[list[str] | None, Field(description="watchpoints, such as '**:out has nan'")] = None,
        on_hit: Annotated[
            Literal["report", "stop", "pause"], Field(description="what a watchpoint's hit does")
        ] = "pause",
        stop_at_start: Annotated[bool, Field(description="stop before step 0, to set breakpoints")] = True,
    ) -> Answer:
        """Start a training script under Tensonde and leave it running, to be stopped, stepped and looked into with control, watch, tensor."""
        name, words = self._words(script, None, watch, debug=stop_at_start)
        path = str(self._bench.inside(script, "script"))
        out = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the training)
        environment = {"TENSONDE_HUB": self._bench.address.link}
        process = commands.start(
            self._bench.folder,
            [*words, "--ui", "--on-hit", on_hit, path, *(args or [])],
            out,
            out,
            environment=environment,
        )
        with self._lock:
            self._started[name] = Started(process, out)
        state = self._connected(name, process, stop_at_start)
        if state is None:
            return self._without_training(name, process, out)
        found = self._bench.find(name)
        self._bench.follow(found)
        return Answer("state", state, hints.after_state(name, state), {"run": name})

    def output(self, run: str) -> list[str]:
        """The last lines that a training started from here has printed."""
        with self._lock:
            started = self._started.get(run)
        return _last_lines(commands.tail(started.out, commands.MOST_OUTPUT)) if started is not None else []

    def check_script(
        self,
        script: Script,
        args: Arguments = None,
        steps: Annotated[int, Field(ge=1, le=1000)] = 2,
        timeout: Seconds = 120,
    ) -> Answer:
        """Run two steps of a training script: does it train at all? Loss, gradients, changes of every parameter, and experiments (is it better than a constant, does every input matter). Nothing is kept."""
        self._bench.may_run()
        words = ["check", "--json", "--steps", str(steps), str(self._bench.inside(script, "script")), *(args or [])]
        document = commands.document(self._bench.folder, *words, seconds=timeout)
        parameters = [row for row in document["parameters"] if row["why"]]
        shown = {**document, "parameters": parameters}
        if document["findings"]:
            more = ["The findings name the line to change; run_script records a whole training."]
        elif document["trains"]:
            more = ["Two steps show no problem; run_script watches a whole training."]
        else:
            whys = ["`why` says what keeps each parameter from training."] if parameters else []
            more = [*whys, "run_script records a whole training, and its findings may name the line."]
        return Answer("check", shown, more, {"parameters_in_all": len(document["parameters"])})

    def replay(
        self,
        run: str = "",
        step: Annotated[int | None, Field(ge=0)] = None,
        rank: Annotated[int | None, Field(ge=0)] = None,
        timeout: Seconds = 120,
    ) -> Answer:
        """Run the step that went wrong again, op by op, in a process of its own, and diagnose it. Works where the step was saved: a loss or gradient that is not finite, or a leap of the loss."""
        self._bench.may_run()
        found = self._bench.find(run, rank)
        words = ["replay", str(found.path), "--json"]
        words += ["--step", str(step)] if step is not None else []
        words += ["--rank", str(rank)] if rank is not None else []
        document = commands.document(self._bench.folder, *words, seconds=timeout)
        return Answer("replay", document, hints.after_report(found.name, document, bundles=False))

    def close(self) -> None:
        """What was started ends with the server."""
        with self._lock:
            started, self._started = list(self._started.values()), {}
        for one in started:
            if one.process.poll() is None:
                commands.end(one.process)
            one.out.close()

    def _words(
        self, script: str, steps: int | None, watch: list[str] | None,
        *, experiments: bool = False, every_step: bool = False, debug: bool = False,
    ) -> tuple[str, list[str]]:  # fmt: skip
        self._bench.may_run()
        self._bench.inside(script, "script")
        name = default_name(script)
        words = ["debug" if debug else "run", "--quiet", "--record", str(self._bench.folder / RUNS / name)]
        words += ["--steps", str(steps)] if steps is not None else []
        words += [word for text in watch or [] for word in ("--watch", text)]
        words += ["--experiments"] if experiments else []
        words += ["--budget", "off"] if every_step else []
        return name, words

    def _ended(self, name: str, words: list[str], seconds: float) -> commands.Done:
        with tempfile.TemporaryFile() as out:
            process = commands.start(self._bench.folder, words, out, out)
            timed_out = not commands.wait(process, seconds)
            done = commands.Done(process.returncode, commands.tail(out, commands.MOST_OUTPUT), "", timed_out)
        if not (self._bench.folder / RUNS / name / "run.json").exists():
            raise UsageError(_refusal(done.out) or f"the script could not be started (exit code {done.code}).")
        return done

    def _connected(self, name: str, process: subprocess.Popen[bytes], stopped: bool) -> dict[str, Any] | None:
        """Its state when it trains, or has stopped; None when it has ended before."""
        until = time.monotonic() + CONNECT_SECONDS
        while time.monotonic() < until and process.poll() is None:
            for _, run in self._bench.runs():
                ranks = [rank for rank in run["ranks"] if rank["connected"]] if run["name"] == name else []
                if ranks and (not stopped or ranks[0]["state"] == "stopped"):
                    state: dict[str, Any] = ranks[0]
                    return state
            time.sleep(0.1)
        if process.poll() is None:
            raise UsageError(
                f"{name} has not begun to train within {CONNECT_SECONDS:g} s; it runs on: list_runs shows when it does."
            )
        return None

    def _without_training(self, name: str, process: subprocess.Popen[bytes], out: IO[bytes]) -> Answer:
        said = commands.tail(out, commands.MOST_OUTPUT)
        if not (self._bench.folder / RUNS / name / "run.json").exists():
            raise UsageError(_refusal(said) or f"the script could not be started (exit code {process.returncode}).")
        answer = self._reading.findings(run=name)
        answer.beside |= {"stopped": "it ended before it could be stopped", "output": _last_lines(said)}
        return answer


def _last_lines(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("tensonde: ")]
    return lines[-LINES:]


def _refusal(said: str) -> str:
    return next((line.partition(": ")[2] for line in reversed(said.splitlines()) if line.startswith(("tensonde: ", "Error: "))), "")  # fmt: skip
