"""Two scripts run for a comparison: traced, kept short, and again with what must be equal made equal."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tensonde.compare.causes import cause
from tensonde.compare.dialect import is_foreign
from tensonde.compare.judge import Outcome, judge
from tensonde.compare.porting import unlike
from tensonde.compare.side import Side, read_side
from tensonde.compare.verdict import Verdict
from tensonde.errors import UsageError
from tensonde.launch.interpreter import check_interpreter
from tensonde.launch.supervise import supervise
from tensonde.launch.target import command_line
from tensonde.model.randomness import RANDOM_OPS
from tensonde.session.options import Options, Twin
from tensonde.store.claim import create_run

TRACED = 3
"""Steps that are traced: the third is the first to show what an optimizer keeps from step to step."""


@dataclass(frozen=True)
class Wish:
    """What the user asked for."""

    steps: int
    same_init: bool = False
    same_data: bool = False
    map: Mapping[str, str] | None = None
    pythons: tuple[str, str] = ("", "")
    """The interpreters of both, this one unless named."""


class Twins:
    """Runs both scripts in `folder` as often as the verdict needs it. `say` gets each progress message."""

    def __init__(self, targets: tuple[str, str], folder: Path, wish: Wish, say: Callable[[str], None]) -> None:
        self.folder, self.wish, self.say = folder, wish, say
        self.commands = []
        for target, python in zip(targets, wish.pythons, strict=True):
            try:
                words = tuple(shlex.split(target))
            except ValueError as problem:
                raise UsageError(f"--run {target!r} cannot be read as a command: {problem}.") from None
            if python:
                check_interpreter(python)
            self.commands.append((words, *command_line(words, python)))
        self._runs = 0

    def compare(self) -> Verdict:
        wish = self.wish
        feed = Twin(take=self._kept, weights=wish.same_init, batches=wish.same_data) if self._asked else None
        # In another interpreter the second is most likely a port: then both draw the same numbers from the beginning.
        likely = any(wish.pythons)
        mine = self._run(0, (0, TRACED), wish.steps, Twin(keep=self._kept, seeded=likely, across=likely))
        theirs = self._run(1, (0, TRACED), wish.steps, None)
        if is_foreign(mine, theirs):
            return self._across(mine, theirs)
        outcome = judge(mine, theirs, wish.map)
        if feed is not None and outcome.verdict.verdict != "incomparable":
            theirs = self._run(1, (0, TRACED), TRACED, replace(feed, renamed=_back(outcome)))
            outcome = judge(mine, theirs, wish.map)
        return self._second_look(mine, outcome)

    @property
    def _asked(self) -> bool:
        return self.wish.same_init or self.wish.same_data

    @property
    def _kept(self) -> str:
        return str((self.folder / "kept").absolute())

    def _across(self, mine: Side, theirs: Side) -> Verdict:
        """The second is a port of the first to another framework: it is given the first's weights and batches in any case, and both
        draw the same random numbers. What was not even alike before counts, too."""
        before = judge(mine, theirs, self.wish.map)
        if before.verdict.verdict == "incomparable":
            return before.verdict
        other = unlike(mine, theirs, self.wish.map)
        self.say("the second script runs again with the first's weights and batches")
        random = not any(self.wish.pythons) and any(
            op.op in RANDOM_OPS for side in (mine, theirs) for trace in side.traces.values() for op in trace.ops
        )
        if random:
            mine = self._run(0, (0, TRACED), TRACED, Twin(keep=self._kept, seeded=True, across=True))
        feed = Twin(
            take=self._kept, weights=True, batches=True, seeded=True, across=True,
            renamed=_back(before), transposed=before.pairing.transposed,
        )  # fmt: skip
        fed = self._run(1, (0, TRACED), TRACED, feed)
        verdict = judge(mine, fed, self.wish.map).verdict
        notes = [f"{theirs.label} was given the weights and batches of {mine.label}"]
        notes[0] += ", and both drew the same random numbers."
        verdict = replace(verdict, notes=(*notes, *verdict.notes))
        if other is None:
            return verdict
        first = replace(before.verdict, judgement=other.judgement, first=other, verdict="divergent")
        first = replace(first, cause=cause(first), notes=())
        return replace(first, then=verdict) if verdict.verdict == "divergent" else replace(first, notes=tuple(notes))

    def _second_look(self, mine: Side, outcome: Outcome) -> Verdict:
        verdict, first = outcome.verdict, outcome.verdict.first
        if first is None:
            return verdict
        renamed = _back(outcome)
        if first.judgement == "init" and outcome.drawn:
            self.say(
                "initial weights are other draws of one distribution: the second script runs again with the first's"
            )
            again = self._again(mine, Twin(take=self._kept, weights=True, batches=True, seeded=True, renamed=renamed))
            note = "Initial weights differed by the random draw only, so the second run was given the first's (and its batches)."
            if again.verdict == "divergent":
                return replace(again, notes=(note, *again.notes), losses=verdict.losses)
            return replace(verdict, notes=("With the same initial weights the runs agree.", *verdict.notes))
        if first.judgement == "data" or first.judgement == "init":
            what = "batches" if first.judgement == "data" else "initial weights"
            self.say(f"{what} differ: the second script runs again with the first's")
            feed = Twin(take=self._kept, weights=True, batches=True, renamed=renamed)
            again = self._again(mine, feed)
            if again.verdict == "divergent" and again.judgement not in ("data", "init"):
                return replace(verdict, then=again)
            if again.verdict == "equivalent":
                return replace(verdict, notes=(f"With the same {what} the runs agree.", *verdict.notes))
            return verdict
        if first.random:
            self.say("random draws differ: both scripts run again with the same ones")
            mine = self._run(0, (0, TRACED), TRACED, Twin(seeded=True))
            again = self._again(mine, Twin(seeded=True))
            note = "Random draws (dropout and the like) differed; for this comparison both runs drew the same."
            if again.verdict == "divergent":
                return replace(again, notes=(note, *again.notes), losses=verdict.losses)
            return replace(again, notes=(note, *again.notes), losses=verdict.losses)
        if outcome.late is not None:
            window = (max(0, outcome.late - 2), outcome.late + 1)
            self.say(
                f"the runs part in step {outcome.late}: both run again with steps {window[0]} to {window[1] - 1} traced"
            )
            sides = [self._run(k, window, window[1], None) for k in (0, 1)]
            again = judge(sides[0], sides[1], self.wish.map).verdict
            if again.first is not None:
                return replace(again, losses=verdict.losses)
        return verdict

    def _again(self, mine: Side, twin: Twin) -> Verdict:
        return judge(mine, self._run(1, (0, TRACED), TRACED, twin), self.wish.map).verdict

    def _run(self, which: int, window: tuple[int, int], steps: int, twin: Twin | None) -> Side:
        words, command, script = self.commands[which]
        letter = "ab"[which]
        name = f"{letter}{self._runs}"
        self._runs += 1
        folder = create_run(self.folder, name, {"script": script, "argv": list(words[1:])})
        options = Options(
            run=str(folder.absolute()),
            budget=0.05,
            steps=steps,
            recommended=False,
            quiet=True,
            window=window,
            twin=twin,
        )
        self.say(f"running {' '.join(words)}")
        output = folder / "output.txt"
        with output.open("wb") as file:
            code = supervise(command, options, output=file)
        if code != 0 and not (folder / "rank0").exists():
            tail = output.read_text(errors="replace").strip().splitlines()[-1:]
            raise UsageError(f"{' '.join(words)} ended with exit code {code} before any training: {' '.join(tail)}")
        return read_side(folder, " ".join(words))


def _back(outcome: Outcome) -> dict[str, str]:
    """The second run's names of parameters to the first's."""
    return {theirs: mine for mine, theirs in outcome.pairing.weights.items()}
