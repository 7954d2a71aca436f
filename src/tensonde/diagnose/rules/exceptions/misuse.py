"""Exceptions of calls that were given something of another kind: the line that made it so."""

from __future__ import annotations

from tensonde.diagnose.exceptions import Cause, Event, family


@family("not-a-tensor")
def not_a_tensor(event: Event) -> Cause | None:
    """A call that takes a tensor gets a tuple, a dictionary or None. The variable got its value on another line: a
    recurrent layer returns its output and its state, a forward without `return` returns None.
    """
    found = event.get("not_a_tensor")
    if not found:
        return None
    name, kind = found["name"], found["type"]
    maker = f"{found['module']} ({found['module_type']})" if found.get("module") else "that line"
    missing = bool(found.get("forward"))
    return Cause(
        title=f"the forward of {maker} returns nothing"
        if missing
        else f"`{name}` is a {kind}, not a tensor{f': {maker} gives one' if found.get('module') else ''}",
        advice="Return the output at the end of forward."
        if missing
        else f"Take the part you need: {name}, _ = ... (a recurrent layer returns its output and its state)."
        if kind in ("tuple", "list") and found.get("module")
        else f"Make a tensor of it: torch.tensor({name}), or torch.stack({name}) where it holds tensors."
        if kind in ("tuple", "list")
        else f"Look at the line that gives `{name}` its value.",
        line=found["line"],
        module=found.get("module") if missing else None,
        evidence={"variable": name, "type": kind},
        confidence=0.9,
    )


@family("loss-is-a-number")
def loss_is_a_number(event: Event) -> Cause | None:
    """backward() is called on a plain number: `.item()` or `float()` took it out of the graph."""
    found = event.get("number")
    if not found:
        return None
    return Cause(
        title=f"`{found['name']}` is a plain {found['type']} without a graph, so it has no backward()",
        advice="Sum the tensors themselves, and use .item() of the result only for printing.",
        line=found["line"],
        evidence={"variable": found["name"], "type": found["type"]},
        confidence=0.93,
    )


@family("inference-tensor")
def inference_tensor(event: Event) -> Cause | None:
    """A tensor made under `torch.inference_mode()` cannot be part of a graph, not even as a constant input of a
    trained layer. Tensors made under `no_grad()` can.
    """
    found = event.get("inference")
    if not found:
        return None
    return Cause(
        title="a tensor made under inference_mode is used in training",
        advice="Use torch.no_grad() there (or clone() the tensor outside the block).",
        line=found["line"],
        confidence=0.9,
    )


@family("optimizer-state-misfits")
def state_misfits(event: Event) -> Cause | None:
    """The step of an optimizer raises, and entries of a parameter's state have a different shape than the parameter:
    the state belongs to another model. It was loaded, or the parameter has been given other values since.
    """
    found = event.get("stepping")
    if not found or not found["misfits"]:
        return None
    key, name = found["misfits"][0], found["parameter"] or "a parameter"
    more = f", and so for {found['others']} other parameters" if found["others"] else ""
    shapes = f"shape {found['state'][key]['shape']}, the parameter {found['value']['shape']}"
    return Cause(
        title=f"the state `{key}` of {name} has {shapes}{more}",
        advice=(
            "The state loaded here belongs to a model of a different size: build the original model, or do not load the optimizer's state."
            if found["loaded"]
            else "The parameter got other values after the optimizer had started: create the optimizer again after that."
        ),
        line=found["loaded"] or found["made"],
        confidence=0.93,
    )


@family("optimizer-state-mismatch")
def optimizer_state(event: Event) -> Cause | None:
    """The state of an optimizer was saved with different parameter groups than it has now: the model has changed, or
    the optimizer is built differently from the one that was saved.
    """
    found = event.get("optimizer_state")
    if not found:
        return None
    now, saved = found["groups"], found["saved"]
    return Cause(
        title=f"the saved state has parameter groups of {saved} parameters, {found['type']} has {now}",
        advice="Build the optimizer like the saved one, with the same parameters in the same groups; or do not load its state.",
        line=found["line"],
        evidence={"groups": now, "saved": saved},
        confidence=0.9,
    )
