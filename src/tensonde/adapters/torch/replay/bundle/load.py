"""From a bundle's document to a tape that can be executed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.replay.bundle.functions import function_of
from tensonde.adapters.torch.replay.bundle.rebuild import Found
from tensonde.adapters.torch.replay.bundle.tensors import Contents
from tensonde.adapters.torch.replay.bundle.tree import Decoder
from tensonde.adapters.torch.replay.call import Place, Slot, TapedCall
from tensonde.adapters.torch.replay.execute import Losses
from tensonde.errors import RecordingError
from tensonde.program.lines import from_json


def tape_of(document: Mapping[str, Any], contents: Contents, roots: Found) -> tuple[list[TapedCall], Losses]:
    """The calls with the modules of this process, and what is differentiated. Raises RecordingError."""

    def module(root: str, path: str) -> nn.Module:
        try:
            return roots[root].get_submodule(path)
        except (KeyError, AttributeError):
            raise RecordingError(f"{root} has no module {path!r} here.") from None

    def state(root: str, path: str) -> Tensor:
        owner, _, name = path.rpartition(".")
        held = getattr(module(root, owner), name, None)
        if not isinstance(held, Tensor):
            raise RecordingError(f"{root} has no parameter or buffer {path!r} here.")
        return held

    decoder = Decoder(contents, module, state)
    try:
        entries = [_entry(call, decoder) for call in document["calls"]]
        losses = [
            (Slot(int(scaled)), Slot(int(plain)), decoder.decode(seed)) for scaled, plain, seed in document["losses"]
        ]
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise RecordingError(f"the bundle is damaged: {error}.") from None
    return entries, losses


def _entry(call: Mapping[str, Any], decoder: Decoder) -> TapedCall:
    if "module" in call:
        root, path = call["module"]
        what: Any = decoder.module(str(root), str(path))
    else:
        what = function_of(str(call.get("function")))
        if what is None:
            raise RecordingError(f"this torch has no function {str(call.get('function'))[:80]!r}.")
    random = decoder.contents.plain(call["random"]) if call["random"] is not None else None
    return TapedCall.again(
        what,
        [decoder.decode(value) for value in call["args"]],
        {str(name): decoder.decode(value) for name, value in call["kwargs"].items()},
        random=random,
        grad=call["grad"],
        outputs=[Slot(int(slot)) for slot in call["outputs"]],
        autocast=tuple((str(device), decoder.decode({"dtype": dtype})) for device, dtype in call["autocast"]),
        buffers=tuple((decoder.decode(buffer), decoder.contents.plain(name)) for buffer, name in call["buffers"]),
        place=_place(call),
    )


def _place(call: Mapping[str, Any]) -> Place:
    source, (owner, kind) = call["source"], call["owner"]
    return from_json(source), str(owner), str(kind)
