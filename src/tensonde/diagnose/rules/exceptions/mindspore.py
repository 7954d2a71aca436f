"""Exceptions that only MindSpore has: an optimizer that is called with gradients, a compiler that reads both branches."""

from __future__ import annotations

import re

from tensonde.diagnose.exceptions import Cause, Event, family, message

_UNSET = re.compile(r"The local variable '(\w+)' is not defined in (false|true) branch")


@family("gradients-of-inputs")
def gradients_of_inputs(event: Event) -> Cause | None:
    """`value_and_grad` and `grad` also differentiate by the first input, unless `grad_position` is None. They then
    return two things, and the optimizer is called with both. The finding names the line that creates the function, if
    there is only one.
    """
    found = event.get("optimizer_call")
    if not found or len(found["given"]) != 2 or found["given"][1] is None:
        return None
    if found["given"][1] != found["parameters"] or found["parameters"] == 2:
        return None
    return Cause(
        title=f"{found['type']} gets the gradients of the inputs in addition to those of its {found['parameters']} parameters",
        advice="Give None for grad_position: value_and_grad(forward, None, weights), so that only the weights are differentiated by; or call the "
        "optimizer with grads[1].",
        line=found.get("differentiated"),
        evidence={"given": len(found["given"]), "parameters": found["parameters"]},
        confidence=0.95,
    )


@family("too-few-rates")
def too_few_rates(event: Event) -> Cause | None:
    """A list of learning rates has one rate per step, and the training has more steps."""
    found, step = event.get("optimizer_call"), event.get("step")
    if not found or not found.get("rates") or not isinstance(step, int) or step < found["rates"]:
        return None
    return Cause(
        title=f"{found['type']} has {found['rates']} learning rates, one for each step, and none for step {step}",
        advice="Make the list as long as the training: steps per epoch times epochs (total_step of cosine_decay_lr and similar functions counts steps).",
        line=found.get("made"),
        evidence={"rates": found["rates"], "step": step},
        confidence=0.95,
    )


@family("unset-in-a-branch")
def unset_in_a_branch(event: Event) -> Cause | None:
    """A condition on a tensor is compiled with both of its branches, so a variable that only one of them sets has no
    value afterwards.
    """
    found = _UNSET.search(message(event))
    if found is None:
        return None
    name, branch = found.groups()
    return Cause(
        title=f"`{name}` has no value where the condition is {branch}, but it is used afterwards",
        advice=f"Give `{name}` a value before the condition, or in both branches: MindSpore compiles both if the condition depends on a tensor.",
        evidence={"variable": name},
        confidence=0.93,
    )
