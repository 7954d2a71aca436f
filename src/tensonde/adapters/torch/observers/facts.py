"""What is known of a training beside its tensors, gathered at next to no cost: facts.json of a recording.

One observer per subject; `Facts` passes on what the adapter sees and writes the whole after the first steps, when an
exception ends the program, and at the end. The schema is `model/facts.py`. Every method is called by the training thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.divisions import divisions
from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.observers import resumes
from tensonde.adapters.torch.observers.batches import Batches
from tensonde.adapters.torch.observers.beginnings import BEGINNINGS
from tensonde.adapters.torch.observers.clipping import Clipping
from tensonde.adapters.torch.observers.collectives import Collectives
from tensonde.adapters.torch.observers.copies import Copies, loaded_over
from tensonde.adapters.torch.observers.course import Course
from tensonde.adapters.torch.observers.emptied import EMPTIED
from tensonde.adapters.torch.observers.evaluated_weights import EvaluatedWeights
from tensonde.adapters.torch.observers.filters import filtered
from tensonde.adapters.torch.observers.functions import careless
from tensonde.adapters.torch.observers.graphs import Graphs
from tensonde.adapters.torch.observers.held_parameters import Holdings, looked_at, optimizers
from tensonde.adapters.torch.observers.hooks import HOOKS
from tensonde.adapters.torch.observers.inside import Inside
from tensonde.adapters.torch.observers.inventory import module_facts, optimizer_facts
from tensonde.adapters.torch.observers.loaders import LOADERS
from tensonde.adapters.torch.observers.loads import loaded_itself, unfilled, unmatched
from tensonde.adapters.torch.observers.modes import RootModes
from tensonde.adapters.torch.observers.norms import Norms
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.probe import Probe, leaves
from tensonde.adapters.torch.observers.rates import mirrored, rates
from tensonde.adapters.torch.observers.reading import READING
from tensonde.adapters.torch.observers.recreated_optimizers import Renewals
from tensonde.adapters.torch.observers.refills import STEPS, refilled
from tensonde.adapters.torch.observers.repeats import repeated
from tensonde.adapters.torch.observers.replicas import Replicas
from tensonde.adapters.torch.observers.scales import Scales
from tensonde.adapters.torch.observers.schedules import STEPPED, scheduler_facts
from tensonde.adapters.torch.observers.sequence import Sequence
from tensonde.adapters.torch.observers.stages import STAGES
from tensonde.adapters.torch.observers.stale_statistics import Untouched
from tensonde.adapters.torch.observers.tokens import Tokens
from tensonde.adapters.torch.observers.unregistered import Strangers
from tensonde.adapters.torch.precision import cudnn, matmul_precision
from tensonde.adapters.torch.run.by_hand import ByHand
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import transforming, unnoticed
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.model import versions
from tensonde.model.moment import Phase
from tensonde.program import queries
from tensonde.program.divisions import divisions_by_ranks
from tensonde.program.frames import user_place
from tensonde.program.gradients import rewrite_between
from tensonde.program.lines import CodeLine, line_at, line_of
from tensonde.program.reordering import apart
from tensonde.program.syntax import loop_around, parse

MODELS_LOOKED_AT = 3
EVERY_BATCH = 128
"""So many first batches are looked at; of the later ones, some."""
WRITE_AFTER = (50, 1000)
MOST_OPTIMIZERS = 32
MOST_STRANGERS = 16
"""Modules that are no roots whose evaluation ends a rest."""
LOOK_AFTER = (1, 20)
CALL_SITE_STEPS = 4096
"""The first steps, in which the line that calls a model is noted."""
NEVER = {"steps": 0, "before_optimizer": False, "line": None}
_grad_enabled = torch.is_grad_enabled
_jit_tracing = torch._C._get_tracing_state
"""While torch.jit traces, what we compute would become part of its graph."""


class Facts:
    def __init__(self, state: RunState, by_hand: ByHand) -> None:
        self.state = state
        self._by_hand = by_hand
        self.settle: Callable[[], None] = lambda: None
        """Called before the facts are gathered: counts the optimizer steps of stretches that were not observed."""
        self.root_ids: set[int] = set()
        self._put_into_eval: set[int] = set()
        self.sequence = Sequence()
        self.graphs = Graphs()
        self.clipping = Clipping()
        self.renewals = Renewals()
        self.batches = Batches()
        self.scales = Scales()
        self.norms = Norms(state.roster.entries)
        self.tokens = Tokens(state.roster.entries)
        self.untouched = Untouched()
        self.copies = Copies()
        self.evaluated_weights = EvaluatedWeights()
        self.memory: Callable[[], dict[str, Any] | None] = lambda: None
        """What the first steps took of memory."""
        self.answers: Callable[[], list[dict[str, Any]]] = list
        """What experiments were told."""
        self.evaluated: Callable[[nn.Module, Any, Any, int], None] = lambda root, given, out, step: None
        """Hears what models give in evaluations."""
        self.model_runs: Callable[[], None] = lambda: None
        """Called before a model runs: whoever looks at what is made of outputs looks away, for some modules compute otherwise under a mode."""
        self._given: tuple[Any, ...] | None = None
        self._fast_paths = False
        """A model was evaluated that computes otherwise under a mode."""
        self.holdings = Holdings(state)
        self.probe = Probe(state)
        self.modes: dict[int, RootModes] = {}
        self.inside = Inside(state)
        self.collectives = Collectives(state)
        self.replicas = Replicas(state)
        self.course = Course(state)
        self.reached: list[str] | None = None
        self.loss_leaves = 0
        self.leaf_loss: dict[str, Any] | None = None
        """Where a loss is made that has no history."""
        self.strangers = Strangers()
        self._strangers: list[dict[str, Any]] = []
        self.evaluations: dict[int, int] = {}
        self.eval_without_no_grad = 0
        self._walks = 0
        self._writes = 0
        self._counted = False
        self._optimizer_steps: dict[int, int] = {}
        self._optimizers: dict[int, dict[str, Any]] = {}
        self._schedulers: dict[int, dict[str, Any]] = {}
        self._modules: dict[str, dict[str, Any]] = {}
        self._repeated: list[dict[str, Any]] = []

    # -- modules ---------------------------------------------------------------------------------

    @unnoticed
    def root_called(self, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        state = self.state
        if state.phase is Phase.BACKWARD or state.opaque or _jit_tracing() is not None or capturing():
            return
        mark = state.session.clock()
        modes = self.modes.get(id(root))
        if modes is None or modes.ref() is not root:
            modes = self._meet(root)
        self.model_runs()
        EMPTIED.called(root)
        if _grad_enabled():
            if (state.step < EVERY_BATCH and root.training) or state.step < 4 or state.step % 16 == 0:
                self.batches.given(modes.name, args, kwargs, state.step)
                self.tokens.given(root, args, kwargs)
                if root.training:
                    self.replicas.root_called(root)
                    if self.state.session.world > 1:
                        BEGINNINGS.numberings(sys._getframe(1))
                        if state.step < MODELS_LOOKED_AT:
                            known = state.parameters
                            BEGINNINGS.models(state.roster.roots.values(), known.live(), known.buffers)
                    self.scales.training(modes.name, args, kwargs, state.step)
        else:
            modes.called_without_grad(state.step)
            self._given = args
            self._copy_evaluated(root)
            if not root.training:
                self.scales.evaluation(modes.name, args, kwargs, state.step)
        if not root.training:
            modes.eval_mode_seen = True
            if state.step:
                self.untouched.evaluated(root, modes.name, state.step)
            looked = self.evaluations.get(id(root), 0)
            if looked < 2 and not KNOWN.compiled and not _fast_path(root):
                self.evaluations[id(root)] = looked + 1
                state.idle = False
                self.probe.start()
        state.session.spent_since(mark)

    def is_looked_at(self, module: nn.Module) -> bool:
        """A module is put into eval mode while Tensonde rests: a root, or one that was never called where it could be seen, such as a copy that is evaluated late."""
        key = id(module)
        if key in self.root_ids:
            return True
        if key in self._put_into_eval or len(self._put_into_eval) >= MOST_STRANGERS:
            return False
        self._put_into_eval.add(key)
        return True

    @unnoticed
    def stranger_evaluated(self, root: nn.Module) -> None:
        """A model that is only evaluated, between steps of which nothing else is noted."""
        state = self.state
        if state.step and not transforming() and state.thread == get_ident():
            self.model_runs()
            self._fast_paths = self._fast_paths or _fast_path(root)
            if not root.training:
                self.untouched.evaluated(root, type(root).__name__, state.step)
            self._copy_evaluated(root)
            if self.copies.follows(root):
                self.untouched.parts.discard(id(root))

    def _copy_evaluated(self, root: nn.Module) -> None:
        place = next((track.step_place for track in self.sequence.tracks.values() if track.step_place), None)
        self.copies.evaluated(root, self.state.step, sys._getframe(2), place[0] if place is not None else None)
        if self.state.session.world > 1:
            entry = self.state.roster.entries.get(id(root))
            self.evaluated_weights.called(root, entry.name if entry else type(root).__name__, self.state.step)

    def _meet(self, root: nn.Module) -> RootModes:
        self.root_ids.add(id(root))
        self._fast_paths = self._fast_paths or _fast_path(root)
        entry = self.state.roster.entries.get(id(root))
        modes = self.modes[id(root)] = RootModes(entry.name if entry else type(root).__name__, root)
        return modes

    def root_left(self) -> bool:
        """A root has returned or raised. Whether its functions were looked at."""
        looked = self.probe.on
        self.probe.stop()
        return looked

    @unnoticed
    def root_returned(self, root: nn.Module, out: Any) -> None:
        state = self.state
        if state.phase is Phase.BACKWARD or state.opaque or KNOWN.compiled or _jit_tracing() is not None:
            return
        if not _grad_enabled():
            mark = state.session.clock()
            given, self._given = self._given, None
            if not self._fast_paths:
                self.evaluated(root, given, out, state.step)
            state.session.spent_since(mark)
        else:
            mark = state.session.clock()
            modes = self.modes.get(id(root))
            site = None
            if modes is not None and modes.sensitive and root.training and state.step < CALL_SITE_STEPS:
                place = user_place(sys._getframe(2))
                site = (modes.name, *place) if place is not None else None
            self.graphs.made(out, state.step, site)
            state.session.spent_since(mark)

    # -- losses and optimizers -------------------------------------------------------------------

    @unnoticed
    def before_backward(self, given: Any) -> None:
        losses = tensors_in(given)
        self._counted = bool(losses)
        if not losses:  # torch.autograd.grad leaves nothing in parameters
            return
        self.graphs.backward(losses)
        if self.sequence.steps < 8:
            self.sequence.backward_place = self._by_hand.backward_place = user_place(sys._getframe(2))
        if self._walks < 3:
            self._walks += 1
            self._walk(losses)
        self.sequence.before_backward()

    def _walk(self, losses: list[Tensor]) -> None:
        """Which parameters the loss depends on, as autograd sees it."""
        names = self.state.parameters.names
        found = leaves(losses)
        if self.leaf_loss is None and all(loss.grad_fn is None for loss in losses):
            self.leaf_loss = _made_line(user_place(sys._getframe(2)))
        self.loss_leaves = max(self.loss_leaves, len(found))
        self._by_hand.met(found)
        foreign = [leaf for leaf in found if not isinstance(leaf, nn.Parameter) and id(leaf) not in names]
        self.sequence.foreign_leaves |= bool(foreign)
        self.strangers.met(
            [*foreign, *(leaf for leaf in found if isinstance(leaf, nn.Parameter) and id(leaf) not in names)]
        )
        known = {names[id(leaf)][0] for leaf in found if id(leaf) in names}
        self.reached = sorted(known | set(self.reached or ()))[:4000]

    @unnoticed
    def after_backward(self) -> None:
        if self._counted:
            self.sequence.after_backward()

    @unnoticed
    def before_optimizer(self, optimizer: torch.optim.Optimizer, closure: bool) -> None:
        count = self._optimizer_steps.get(KNOWN.number(optimizer), 0)
        place = user_place(sys._getframe(2)) if count < 3 else None
        self.sequence.before_step(optimizer, closure, place)
        self.clipping.optimizer_steps(place)
        if not count and not capturing():
            self.copies.begins(optimizer)
        if not closure and looked_at(count) and not capturing():
            self.holdings.before_step(optimizer, count)

    @unnoticed
    def after_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self.sequence.after_step(optimizer)
        count = self._optimizer_steps.get(KNOWN.number(optimizer), 0)
        if looked_at(count) and not capturing():
            self.holdings.after_step(count)
            self.norms.look(list(self.state.roster.roots.values()), self.state.step)
        self.optimizer_stepped(optimizer)
        if count in LOOK_AFTER:
            self.look()
        self._trained(optimizer)

    def _trained(self, holder: Any) -> None:
        step = self.state.step
        if step < 64 or step % 16 == 0:
            for modes in self.modes.values():
                if modes.trained_by(holder):
                    modes.stepped(step)
        self.graphs.stepped(step)

    def updated_by_hand(self, holder: Any) -> None:
        """The script changed parameters itself; `holder` has them as an optimizer would."""
        self._trained(holder)
        if self.state.step in LOOK_AFTER:
            self.look()

    def optimizer_stepped(self, optimizer: torch.optim.Optimizer, steps: int = 1) -> None:
        """It has made so many steps since the last call: all that is noted of them where Tensonde rests."""
        number = KNOWN.number(optimizer)
        before = self._optimizer_steps.get(number, 0)
        STEPS[number] = self._optimizer_steps[number] = before + steps
        KNOWN.stepped.add(number)
        self.renewals.stepped(optimizer, number, before == 0, steps)
        LOADERS.stepped(steps)
        self.collectives.stepped()
        resumes.stepped(optimizer, number)

    def sleep(self) -> None:
        """The coming steps are not seen: what was left open would be closed by the wrong one."""
        self.graphs.forget()
        self.sequence.forget()
        self.model_runs()

    def finished_step(self, step: int) -> None:
        if self.state.session.world > 1:
            self.course.stepped(step - 1)
        READING.step = step
        READING.arrive()
        if self._writes < len(WRITE_AFTER) and step >= WRITE_AFTER[self._writes]:
            self._writes += 1
            mark = self.state.session.clock()
            self.write()
            self.state.session.spent_since(mark)

    # -- writing ---------------------------------------------------------------------------------

    def write(self, *, ended: bool = False) -> None:
        try:
            if ended:
                self.graphs.ended()
                LOADERS.ended()
            self.state.session.writer.facts(self.gather())
        except Exception as problem:
            self.state.session.guard.contain("writing the facts", problem)

    def look(self) -> None:
        """Takes down what is known now: models and optimizers may be gone when the program ends."""
        roots = list(self.state.roster.roots.values())
        for optimizer in optimizers()[:MOST_OPTIMIZERS]:
            self._optimizers[KNOWN.number(optimizer)] = optimizer_facts(optimizer, roots)
        for scheduler in sorted(KNOWN.schedulers, key=KNOWN.number)[:MOST_OPTIMIZERS]:
            self._schedulers[KNOWN.number(scheduler)] = scheduler_facts(scheduler)
        self.holdings.look()
        self.replicas.look()
        self._strangers = self.strangers.facts(self.state) or self._strangers
        self._modules |= module_facts(list(self.state.roster.entries.values()), roots)
        self._repeated = repeated(roots, self.state.roster.entries) or self._repeated

    @unnoticed
    def gather(self) -> dict[str, Any]:
        self.settle()
        self.look()
        READING.arrive(wait=True)
        places = {number: k for k, number in enumerate(self._optimizers)}
        optimizers = [self._optimizer_now(number, known) for number, known in self._optimizers.items()]
        return {
            "schema": versions.FACTS,
            "steps": self.state.step,
            "compiled": KNOWN.compiled,
            "random": {
                "seed": torch.initial_seed(),
                "deterministic": torch.are_deterministic_algorithms_enabled(),
                "matmul_precision": matmul_precision(),
                **cudnn(),
            },
            "threads": torch.get_num_threads(),
            "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
            "optimizers": optimizers,
            "by_hand": self._by_hand.facts(),
            "renewed": self.renewals.facts(),
            "schedulers": [
                {**known, "optimizer": places.get(known["optimizer"]), **STEPPED.get(number, NEVER)}
                for number, known in self._schedulers.items()
            ],
            "parameters": self.holdings.facts(places),
            "modules": self._modules,
            "repeated": self._repeated,
            "roots": {modes.name: modes.facts() for modes in list(self.modes.values())[:64]},
            "loaders": LOADERS.entries,
            "sequence": self.sequence.facts() | self.collectives.pass_facts(),
            "clipping": self.clipping.facts(),
            "batches": self.batches.facts(),
            "scales": self.scales.facts(),
            "tokens": self.tokens.facts(),
            "frozen_norms": self.norms.facts(),
            "untouched_norms": self.untouched.facts(),
            "graphs": self.graphs.facts(),
            "without_grad": self.inside.no_grad_calls,
            "reached": self.reached,
            "leaf_loss": self.leaf_loss,
            "beside_loss": None,  # backward() takes one tensor
            "strangers": self._strangers,
            "freezes": freezes(),
            "train_call": train_call(),
            "loaded_itself": loaded_itself(),
            "loads_unmatched": unmatched(),
            "unfilled": unfilled(),
            "emptied": EMPTIED.facts(),
            "loads_filtered": filtered(),
            "refilled": refilled(places),
            "resumed": resumes.resumed(places),
            "careless_functions": careless(),
            "divisions": divisions(KNOWN.files()),
            "rates_set": rates(KNOWN.files()),
            "mirrored": mirrored(KNOWN.files()),
            "orders_apart": apart(tuple(KNOWN.files())),
            "noise": self.probe.noise,
            "copies": self.copies.facts(self.state.step),
            "loaded_over": loaded_over(),
            "answers": self.answers(),
            "memory": self.memory(),
            "made_in_forward": self.inside.made.facts(),
            "collectives": self.collectives.facts(),
            "replicas": self.replicas.facts(),
            "evaluated_weights": self.evaluated_weights.facts(),
            "divided_by_ranks": _divided_by_ranks(optimizers) if self.state.session.world > 1 else [],
            "beginning": BEGINNINGS.facts(self.state.parameters.live(), optimizers)
            if self.state.session.world > 1
            else {},
            "course": self.course.facts() if self.state.session.world > 1 else {},
            "stages": STAGES.facts(),
            "hooks": HOOKS.facts({key: entry.name for key, entry in self.state.roster.entries.copy().items()}),
        }

    def _optimizer_now(self, number: int, known: dict[str, Any]) -> dict[str, Any]:
        """With what changes from step to step."""
        track = self.sequence.tracks.get(number)
        backward, step = (track.backward_place, track.step_place) if track else (None, None)
        return {
            **known,
            "steps": self._optimizer_steps.get(number, 0),
            "looked_at": track.steps if track else 0,
            "uncleared": track.uncleared if track else 0,
            "emptied": track.emptied if track else 0,
            "without_backward": track.without_backward if track else 0,
            "closure": bool(track and track.closure),
            "had_gradients": bool(track and track.ever),
            "step_line": line_of(step),
            "backward_line": line_of(backward),
            "rewritten": _rewritten(backward, step),
            "steps_after_loop": _after_loop(backward, step),
        }


def _divided_by_ranks(optimizers: list[dict[str, Any]]) -> list[int]:
    places = [known["backward_line"]["file"] for known in optimizers if known.get("backward_line")]
    return divisions_by_ranks(places[0]) if places else []


def _made_line(place: Any) -> dict[str, Any] | None:
    """Of `loss.backward()`: where the variable got its value."""
    if place is None:
        return None
    path = place[0].co_filename
    name = queries.backward_name(path, place[1])
    number = queries.assignment(path, name, before=place[1]) if name else None
    return line_at(path, number) if number else line_of(place)


def _rewritten(backward: CodeLine | None, step: CodeLine | None) -> dict[str, Any] | None:
    """The line between a backward pass and its step that changes gradients."""
    if backward is None or step is None or backward[0].co_filename != step[0].co_filename:
        return None
    path = step[0].co_filename
    found = rewrite_between(path, backward[1], step[1])
    return line_at(path, found) if found else None


def _after_loop(backward: Any, step: Any) -> bool:
    """The step stands behind the loop that the backward pass is in, in the same code."""
    if backward is None or step is None or backward[0] is not step[0]:
        return False
    tree = parse(backward[0].co_filename)
    loop = loop_around(tree, backward[1]) if tree is not None else None
    return loop is not None and step[1] > (loop.end_lineno or loop.lineno)


def train_call() -> dict[str, Any] | None:
    """The only place of the program that calls `train()`."""
    found = [line_at(path, number) for path in KNOWN.files() if (number := queries.only_train_call(path)) is not None]
    return found[0] if len(found) == 1 else None


def freezes() -> dict[str, Any] | None:
    """The only place of the program that turns `requires_grad` off, as far as its files are known."""
    found = [(path, number) for path in KNOWN.files() for number in queries.freezes(path)]
    return line_at(*found[0]) if len(found) == 1 else None


def _fast_path(root: nn.Module) -> bool:
    """Has parts that compute otherwise while a function mode is on."""
    return any(isinstance(m, nn.MultiheadAttention | nn.TransformerEncoderLayer) for m in root.modules())
