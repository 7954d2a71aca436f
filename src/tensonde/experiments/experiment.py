"""What an experiment is, and the inquiry that asks them of the steps of one training.

An experiment is one file: a question, when it may be asked, what it changes and measures, what a healthy answer is and why. It gives
answers; the words of a finding are in `diagnose/rules/experiments`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from time import thread_time
from typing import Any

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.step import NotPossible, Step
from tensonde.model.site import SourceLine


@dataclass(frozen=True, slots=True)
class Answer:
    """`healthy` is None where the step does not tell; `why` says so."""

    healthy: bool | None
    why: str = ""
    """In a few words: what was seen, or why it was not asked."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """Values, parameters or ops that the answer is about."""
    source: SourceLine | None = None
    module: str = ""
    op: str = ""
    part: str = ""
    """Which of several ways in which the answer may be amiss."""


NO_TIME = "there was no time"
Memory = dict[str, Any]
"""What an experiment keeps from step to step."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """`ask` raises `NotPossible` where the question does not apply. `first`: the first step that may be asked; `times`: how many
    steps are asked that tell something; `alone`: only where one loss and one optimizer train, since what one of several ignores may be
    another's; `always`: before all others, in every step that is asked."""

    name: str
    question: str
    ask: Callable[[Step, Memory], Iterable[Answer]]
    first: int = 1
    times: int = 1 << 30
    alone: bool = True
    always: bool = False


class Inquiry:
    """Belongs to the training thread. Experiments are asked in order while there is time; each keeps its own memory."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str, int, Answer]] = []
        self.seconds: dict[str, float] = {}
        self.dues = 0.0
        """Seconds that those took which are asked of every step, the most that it was in a step."""
        self._memories: dict[str, Memory] = {}
        self._declined: dict[int, str] = {}
        self._told: dict[str, set[int]] = {}
        self._ended: Counter[str] = Counter()
        """In how many steps there was time for an experiment: those with the fewest come first."""

    def ask(
        self, step: Step, experiments: Sequence[Experiment], failed: Callable[[Exception], None] = lambda problem: None
    ) -> None:
        """`failed` hears of an experiment that raises, which costs its own answer only."""
        if not isfinite(float(step.array(step.loss))):
            self.declined(step.number, "the loss is not finite")
            return
        if step.several:
            self.declined(step.number, "several losses or optimizers take turns")
        try:
            self._ask(step, experiments, failed)
        finally:
            Anatomy.forget()

    def _ask(self, step: Step, experiments: Sequence[Experiment], failed: Callable[[Exception], None]) -> None:
        dues = 0.0
        for experiment in sorted(experiments, key=lambda e: (not e.always, self._ended[e.name])):
            told = self._told.setdefault(experiment.name, set())
            if step.number < experiment.first or (step.number not in told and len(told) >= experiment.times):
                continue
            if step.several and experiment.alone:
                continue
            began = thread_time()
            self._ended[experiment.name] += 1
            try:
                if step.seconds_left() <= 0:
                    raise NotPossible(NO_TIME)
                found = list(experiment.ask(step, self._memories.setdefault(experiment.name, {})))
            except NotPossible as problem:
                found = [Answer(None, str(problem))]
                self._ended[experiment.name] -= step.seconds_left() <= 0 or str(problem) == NO_TIME
            except Exception as problem:
                failed(problem)
                found = []
            if any(a.healthy is not None for a in found):
                told.add(step.number)
            self.answers += [(experiment.name, experiment.question, step.number, answer) for answer in found]
            took = thread_time() - began
            self.seconds[experiment.name] = self.seconds.get(experiment.name, 0.0) + took
            dues += took if experiment.always else 0.0
        self.dues = max(self.dues, dues)

    def memory(self, experiment: Experiment) -> Memory:
        """What an experiment has kept so far."""
        return self._memories.setdefault(experiment.name, {})

    def told(self, name: str, question: str, step: int, answer: Answer) -> None:
        """An answer that no step was asked for; a later one of the same step takes its place."""
        self.answers = [known for known in self.answers if (known[0], known[2]) != (name, step)]
        self.answers.append((name, question, step, answer))

    def declined(self, step: int, why: str) -> None:
        """Nothing could be asked of this step."""
        self._declined[step] = why

    def facts(self) -> list[dict[str, Any]]:
        """In the shape of `AnswerFact`."""
        found = [
            {
                "experiment": name,
                "question": question,
                "step": step,
                "healthy": answer.healthy,
                "why": answer.why,
                "numbers": dict(answer.numbers),
                "names": list(answer.names),
                "line": None if (s := answer.source) is None else {"file": s.file, "line": s.line, "code": s.code},
                "module": answer.module,
                "op": answer.op,
                "part": answer.part,
            }
            for name, question, step, answer in self.answers
        ]
        found += [{"experiment": "", "step": step, "why": why} for step, why in self._declined.items()]
        return found
