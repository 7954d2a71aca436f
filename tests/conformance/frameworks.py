"""The frameworks that the conformance suite runs on.

A framework brings seven small programs (`programs_<framework>.py`), which note by their own means what they compute: `kept.npz` holds
tensors by "STEP ADDRESS", RESULT the losses, weights and random numbers. The suite compares a recording with these notes, so the
programs must use the same names: a model with `first` (linear, 4 to 8), `act` (tanh) and `last` (linear, 8 to 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tensonde.adapters.adapter import Adapter
from tensonde.adapters.registry import adapter_of, installed

NAMES = ("training", "not a number", "exception", "evaluation", "accumulation", "questions", "sabotage")


@dataclass(frozen=True)
class Framework:
    adapter: Adapter
    programs: dict[str, str]

    def line(self, program: str) -> int:
        """The line marked HERE."""
        return next(k for k, text in enumerate(self.programs[program].splitlines(), 1) if "# HERE" in text)


STANDIN = Path(__file__).parent.parent / "standin"


def on_standin(program: str) -> str:
    """The same program with its model and batches on the stand-in accelerator."""
    changes = {
        ".detach().numpy()": ".detach().cpu().numpy()",
        "generator=generator)": 'generator=generator).to("standin")',
        "net = Net()": 'net = Net().to("standin")',
        "net = Bad()": 'net = Bad().to("standin")',
    }
    for old, new in changes.items():
        program = program.replace(old, new)
    return f"import sys; sys.path.append({str(STANDIN)!r}); import standin\n{program}"


FRAMEWORKS = {name: Framework(adapter_of(name), import_module(f"programs_{name}").PROGRAMS) for name in installed()}
"""Those that are installed here: `make test` has PyTorch, `make test-mindspore` MindSpore."""
if "torch" in FRAMEWORKS:
    torch = FRAMEWORKS["torch"]
    programs = {name: on_standin(program) for name, program in torch.programs.items()}
    FRAMEWORKS["torch on a device"] = Framework(torch.adapter, programs)
