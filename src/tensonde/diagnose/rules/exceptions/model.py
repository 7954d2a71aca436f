"""Exceptions of putting model, optimizer and checkpoint together."""

from __future__ import annotations

import re
from itertools import pairwise

from tensonde.diagnose.exceptions import Cause, Event, family, message


@family("optimizer-without-parameters")
def optimizer_without_parameters(event: Event) -> Cause | None:
    """The optimizer got an empty list. Either the layers are in a plain Python list, where the module does not know
    them, or a filter on requires_grad leaves nothing. The finding names the line that does it.
    """
    if "empty parameter list" not in message(event):
        return None
    facts = event.get("optimizer") or {}
    hidden = [entry for entry in facts.get("hidden") or () if entry.get("line")]
    if not facts.get("parameters") and hidden:
        first = hidden[0]
        return Cause(
            title=f"{first['owner']}.{first['attribute']} holds layers in a plain list or dict, so the model has no "
            "parameters",
            advice="Use nn.ModuleList or nn.ModuleDict.",
            line=first["line"],
            evidence={"parameters": 0},
            confidence=0.9,
        )
    if facts.get("parameters") and not facts.get("trainable"):
        return Cause(
            title=f"0 of {facts['parameters']} parameters require a gradient, so none is left for the optimizer",
            advice="Leave requires_grad on for the parameters to train.",
            line=facts.get("line"),
            evidence={"parameters": facts["parameters"], "trainable": 0},
            confidence=0.9,
        )
    return Cause(
        title="the optimizer gets no parameters",
        advice="An iterator of parameters can be used only once: pass model.parameters() itself, or a list.",
        confidence=0.7,
    )


@family("optimizer-non-leaf")
def optimizer_non_leaf(event: Event) -> Cause | None:
    """Only leaves can be optimized. A tensor that was moved or scaled after requires_grad=True is the result of an
    op. The finding names the line that made the tensor, if a variable or an attribute holds it.
    """
    if "non-leaf Tensor" not in message(event):
        return None
    found = event.get("non_leaf") or {}
    which = f"`{found['name']}`, which" if found.get("name") else "a tensor that"
    return Cause(
        title=f"the optimizer is given {which} is the result of an op ({found.get('op', '?')}), not a parameter",
        line=found.get("line"),
        evidence={name: found[name] for name in ("name", "op", "shape") if name in found},
        advice="Create it on its final device (torch.zeros(..., device=d, requires_grad=True)) or wrap it: "
        "nn.Parameter(t.to(d)).",
        confidence=0.9,
    )


_SIZE = re.compile(
    r"size mismatch for (\S+): copying a param with shape torch\.Size\((\[[^\]]*\])\)"
    r".*?current model is torch\.Size\((\[[^\]]*\])\)"
)
_KEYS = re.compile(r"(Missing|Unexpected) key\(s\) in state_dict: (.*?)\.\s*(?:$|\n)", re.DOTALL)


@family("checkpoint-mismatch")
def checkpoint_mismatch(event: Event) -> Cause | None:
    """A checkpoint does not fit the model: keys differ by a prefix (`module.` of DataParallel, `_orig_mod.` of
    compile), layers are missing, or sizes differ, usually those of the head.
    """
    text = message(event)
    if "state_dict" not in text:
        return None
    keys = {kind: re.findall(r'"([^"]+)"', listed) for kind, listed in _KEYS.findall(text)}
    sizes = _SIZE.findall(text)
    missing, extra = keys.get("Missing", []), keys.get("Unexpected", [])
    for prefix in ("module.", "_orig_mod.", "model."):
        if extra and {key.removeprefix(prefix) for key in extra} == set(missing):
            return Cause(
                title=f"every key of the checkpoint begins with {prefix!r}, those of the model do not",
                advice=f"Remove {prefix!r} from the keys, or save model.module.state_dict().",
                evidence={"missing": missing[:5], "unexpected": extra[:5]},
                confidence=0.95,
            )
    wrapped = [key for key in extra if "." not in key]
    if missing and wrapped and len(wrapped) == len(extra) and not sizes:
        inner = [key for key in wrapped if re.search(r"model|state|net|weights|param", key)]
        return Cause(
            title=f"the checkpoint is a dictionary around the weights: {', '.join(wrapped[:6])}",
            advice=f"Load the part with the weights: load_state_dict(checkpoint[{(inner or wrapped)[0]!r}]).",
            evidence={"missing": missing[:5], "unexpected": extra[:5]},
            confidence=0.9,
        )
    if sizes:
        name, saved, current = sizes[0]
        return Cause(
            title=f"{name} has shape {saved} in the checkpoint and {current} in the model",
            advice="Build the model as it was saved, or do not load this layer.",
            module=name.rpartition(".")[0],
            evidence={"size mismatches": len(sizes)},
            confidence=0.9,
        )
    if missing or extra:
        return Cause(
            title=f"the checkpoint lacks {len(missing)} keys of the model and has {len(extra)} that it does not know",
            advice=f"Compare the names: {', '.join([*missing[:2], *extra[:2]])}.",
            evidence={"missing": missing[:10], "unexpected": extra[:10]},
            confidence=0.8,
        )
    return None


@family("forward-missing")
def forward_missing(event: Event) -> Cause | None:
    """A module without a forward was called: a misspelled method, or a ModuleList called as if it were a Sequential."""
    found = re.search(r'Module \[(\w+)\] is missing the required "forward" function', message(event))
    if not found:
        return None
    container = found[1] in ("ModuleList", "ModuleDict")
    return Cause(
        title=f"{found[1]} has no forward",
        advice="Call its elements one by one, or use nn.Sequential."
        if container
        else "Name the method forward, inside the class.",
        confidence=0.9,
    )


@family("method-of-sharded-model")
def method_of_sharded(event: Event) -> Cause | None:
    """A method of a model other than its forward computes with parameters that are still sharded: FSDP gathers them
    only around forward. The frames show the line that calls the method, and that no module's forward was around it.
    """
    if "got mixed torch.Tensor and DTensor" not in message(event) or not event.get("modules"):
        return None
    frames = list(event.get("frames") or ())
    for caller, inner in pairwise(frames):
        name = str(inner.get("function", "")).rpartition(".")[2]
        if name == "forward":
            return None
        if re.search(rf"\w\.{re.escape(name)}\(", str(caller.get("code", ""))):
            return Cause(
                title=f"`{name}` computes with parameters that are still sharded: FSDP gathers them only around forward",
                advice=f'Tell FSDP about the method: `register_fsdp_forward_method(model, "{name}")`, or call the model itself and let its forward choose.',
                line=caller,
                confidence=0.85,
            )
    return None
