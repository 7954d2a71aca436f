"""Runs a bundle's step in this process, from modules that were built anew, and compares what comes out.

The result goes into a recording of its own and into `replay.json` beside it; then the process ends at once, so that
nothing of the script's comes after it: no optimizer step, no checkpoint, no `finally`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from tensonde.adapters.torch.replay.bundle.checksum import results
from tensonde.adapters.torch.replay.bundle.live import live
from tensonde.adapters.torch.replay.bundle.load import tape_of
from tensonde.adapters.torch.replay.bundle.program import apply, differences
from tensonde.adapters.torch.replay.bundle.rebuild import Found, Rebuild
from tensonde.adapters.torch.replay.bundle.roots import differs, restore
from tensonde.adapters.torch.replay.bundle.save import failure, leaf_names, scalars
from tensonde.adapters.torch.replay.bundle.tensors import Contents
from tensonde.adapters.torch.replay.call import Slot
from tensonde.adapters.torch.replay.execute import Losses, Outcome, Reenactment
from tensonde.adapters.torch.replay.restore.before import Before
from tensonde.adapters.torch.replay.undisturbed import roots_of, undisturbed
from tensonde.adapters.torch.tensors import dtype_name
from tensonde.errors import RecordingError
from tensonde.model.site import Kind, Role
from tensonde.session.options import Options
from tensonde.store.bundles import read_bundle
from tensonde.store.files import dump_json

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher

RESULT = "replay.json"


class Performance:
    """`attach` gives the session its debugger, where one is wanted."""

    def __init__(self, options: Options, attach: Callable[[Watcher], None] | None = None) -> None:
        assert options.replay is not None
        self.options, self.attach = options, attach
        self.folder = Path(options.replay)
        self.document = read_bundle(self.folder)
        self.contents = Contents(self.folder, self.document["tensors"])

    def wait(self) -> None:
        """For the script of this process to build the model."""
        Rebuild(self.document, self.run, self.give_up).wait()

    def give_up(self, why: str) -> None:
        self._end({"outcome": "not_built", "why": why})

    def build(self, name: str) -> None:
        """With what the function `package.module:function` gives: one module, or several by name."""
        module, _, attribute = name.partition(":")
        sys.path.insert(0, os.getcwd())
        built: Any = None
        try:
            factory: Any = import_module(module)
            for part in attribute.split("."):
                factory = getattr(factory, part)
            built = factory()
        except Exception as problem:
            self.give_up(f"the factory {name} failed: {type(problem).__name__}: {problem}")
        names = [entry["name"] for entry in self.document["roots"]]
        if isinstance(built, nn.Module):
            built = {names[0]: built} if len(names) == 1 else {}
        if not isinstance(built, dict) or not all(isinstance(built.get(name), nn.Module) for name in names):
            self.give_up(f"the factory gives {_what(built)}, and the bundle needs {' and '.join(names)}")
        for entry in self.document["roots"]:
            difference = differs(entry, built[entry["name"]])
            if difference:
                self.give_up(difference)
        self.run({name: built[name] for name in names})

    def run(self, roots: Found) -> None:
        """Never comes back."""
        try:
            outcome = self._run(roots)
        except RecordingError as problem:
            self.give_up(str(problem))
        except Exception as problem:
            if os.environ.get("TENSONDE_STRICT") == "1":
                raise
            self.give_up(f"{type(problem).__name__}: {problem}")
        else:
            self._end(outcome)

    def _run(self, roots: Found) -> dict[str, Any]:
        from tensonde.adapters.torch.run.opening import open_watcher
        from tensonde.adapters.torch.seams import install

        apply(self.document["settings"])
        for entry in self.document["roots"]:
            restore(entry, roots[entry["name"]], self.contents)
        watcher = open_watcher(self.options)
        install.install(lambda: watcher)
        install.begin()
        for entry in self.document["roots"]:
            watcher.state.roster.adopt(roots[entry["name"]], entry["name"], entry["prefix"])
        watcher.session.steps.step = watcher.state.step = watcher.session.block.step = int(self.document["step"])
        watcher.rest.looked_at = watcher.state.step  # the steps before it were the training's
        entries, losses = tape_of(self.document, self.contents, roots)
        wanted = self.document.get("target")
        began = time.perf_counter_ns()
        act = Reenactment(watcher.state, entries, losses)
        outcome, error = Outcome(), ""
        with undisturbed(watcher.state, watcher.replay, Before(roots_of(entries)), act.tracer):
            try:
                outcome = act.run(Slot(wanted) if type(wanted) is int else None)
            except Exception as problem:
                error = f"running the step failed: {type(problem).__name__}: {problem}"[:500]
                act.tracer.notes.append(error)
        _observe(watcher, outcome, losses)
        verdict = self._compare(outcome, roots)
        exact = not error and not verdict["different"]
        trace = act.tracer.finish(watcher.state.step, "replay", exact=exact)
        found, expected = failure(trace), self.document["results"].get("failure")
        same_failure = expected is not None and found is not None and _key(found) == _key(expected)
        watcher.session.writer.trace(trace)
        if isinstance(self.document.get("batch"), dict):
            watcher.session.note("batch", step=watcher.state.step, **self.document["batch"])
        if self.options.experiments and not error:
            watcher.laboratory.ask_saved(entries, losses, watcher.state.step, self.options.experiments)
            watcher.facts.write()
        seconds = round((time.perf_counter_ns() - began) * 1e-9, 4)
        watcher.session.note("replayed", step=watcher.state.step, trigger=self.document["trigger"], exact=exact, ops=len(trace.ops), notes=list(trace.notes), seconds=seconds)  # fmt: skip
        if self.attach is not None:
            self._announce(exact, found)
            self.attach(watcher)
            live(watcher, entries, losses)
        install.close()
        watcher.session.close(exit={"exception": None}, coverage={})
        return {
            "outcome": "performed",
            "exact": exact,
            "reproduced": exact or (same_failure and not error),
            "error": error,
            "failure": found,
            "ops": len(trace.ops),
            "seconds": seconds,
            "settings": differences(self.document["settings"], self.document["framework"]),
            **verdict,
        }

    def _announce(self, exact: bool, found: dict[str, Any] | None) -> None:
        how = "comes out bit for bit as it was" if exact else "does not come out bit for bit as it was"
        what = ""
        if found is not None:
            source = found["source"]
            place = f" ({source['file']}:{source['line']})" if source else ""
            what = f"; {found['op']} at {found['site']}{place} is the first that is not finite"
        print(f"tensonde: step {self.document['step']} {how}{what}", file=sys.stderr, flush=True)

    # -- the result ------------------------------------------------------------------------------

    def _compare(self, outcome: Outcome, roots: Found) -> dict[str, Any]:
        """What is not as it was, in the order of the calls, values before gradients."""
        state = {
            id(tensor): (name, path)
            for name, root in roots.items()
            for path, tensor in (*root.named_parameters(), *root.named_buffers())
        }
        expected, here = self.document["results"], results(outcome, leaf_names(state, self.contents.name_of))
        numbers, here_numbers = expected.get("scalars") or {}, scalars(outcome)
        made_by = {str(slot): call for call in self.document["calls"] for slot in call["outputs"]}
        different: list[dict[str, Any]] = []
        for slot, checksum in (expected.get("values") or {}).items():
            if checksum is not None and slot in made_by and here["values"].get(slot) != checksum:
                call = made_by[slot]
                what = call.get("function") or "/".join(part for part in call["module"] if part)
                different.append({"value": what, "source": call["source"], "was": numbers.get(slot), "is": here_numbers.get(slot)})  # fmt: skip
        for k, gradients in enumerate(expected.get("gradients") or []):
            made = here["gradients"][k] if k < len(here["gradients"]) else {}
            different += [
                {"gradient": name}
                for name, checksum in gradients.items()
                if checksum is not None and made.get(name) != checksum
            ]
        compared = len(expected.get("values") or {}) + sum(map(len, expected.get("gradients") or []))
        return {"compared": compared, "different": different}

    def _end(self, outcome: dict[str, Any]) -> None:
        """Says how it went, and ends the process. Where a script starts several, the first one speaks."""
        try:
            with open(Path(self.options.run) / RESULT, "x") as file:
                file.write(dump_json(outcome, indent=1).decode() + "\n")
        except FileExistsError:
            pass
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _observe(watcher: Watcher, outcome: Outcome, losses: Losses) -> None:
    """The loss and the gradients go into the recording as in a training."""
    for scaled, plain, _ in losses:
        loss = outcome.values.get(plain, outcome.values.get(scaled))
        if loss is not None:
            watcher.digests.add(
                watcher.session.site("loss", Role.VALUE, Kind.LOSS, shape=tuple(loss.shape)), loss.detach()
            )
    for leaf, gradient in (pair for pairs in outcome.gradients for pair in pairs):
        name = watcher.state.parameters.names.get(id(leaf))
        if name is not None:
            facts: dict[str, Any] = {"trainable": True, "shape": tuple(leaf.shape), "dtype": dtype_name(leaf)}
            watcher.digests.add(watcher.session.site(name[0], Role.GRAD, Kind.PARAMETER, **facts), gradient.detach())


def _key(failure: dict[str, Any]) -> tuple[Any, ...]:
    source = failure.get("source") or {}
    return failure["op"], failure["phase"], source.get("file"), source.get("line")


def _what(built: Any) -> str:
    if isinstance(built, dict):
        return f"{' and '.join(map(str, built)) or 'nothing'}"
    return f"a {type(built).__name__}"
