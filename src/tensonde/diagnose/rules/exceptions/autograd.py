"""Exceptions of the backward pass: nothing to differentiate, values overwritten, graphs used twice, losses that are
no scalar."""

from __future__ import annotations

import re

from tensonde.diagnose.exceptions import Cause, Event, code, family, message
from tensonde.program.lines import from_json

_AGAIN = "found by running the root's forward again after the exception"


@family("everything-frozen")
def everything_frozen(event: Event) -> Cause | None:
    """The loss does not require a gradient because no parameter does. The line that freezes them is in the program's
    own files; if it filters by name, the finding says how many names match the filter.
    """
    facts = event.get("gradient")
    if not facts or not facts.get("parameters") or facts.get("trainable"):
        return None
    evidence = {
        name: facts[name] for name in ("parameters", "trainable", "filter", "matches", "groups") if name in facts
    }
    title = f"0 of {facts['parameters']} parameters require a gradient, so there is nothing to train"
    advice = "Leave requires_grad on for the parameters to train."
    if facts.get("filter") is not None and not facts.get("matches"):
        title += f": the filter {facts['filter']!r} matches no parameter name"
        advice = f"The names begin with {', '.join(facts['groups'])}: choose the filter from these."
    return Cause(
        title=title,
        advice=advice,
        line=facts.get("line"),
        evidence=evidence,
        confidence=0.95 if facts.get("line") else 0.8,
    )


@family("input-without-gradient")
def input_without_gradient(event: Event) -> Cause | None:
    """`torch.autograd.grad` is asked for the gradient of a tensor that does not require one, as in a gradient penalty
    on an interpolation. The tensor must require a gradient before anything is computed from it.
    """
    facts = event.get("gradient")
    if not facts or not facts.get("asked_for"):
        return None
    name = facts["asked_for"]
    return Cause(
        title=f"the gradient of `{name}` is requested, but it does not require one",
        advice=f"Call {name}.requires_grad_() where it is made, before the forward pass that uses it.",
        line=facts.get("line"),
        evidence={"variable": name},
        confidence=0.93,
    )


@family("loss-without-gradient")
def loss_without_gradient(event: Event) -> Cause | None:
    """There are trainable parameters, but the loss is not connected to them: it is computed under no_grad, or
    detached on the way (by `.item()`, `.detach()`, `.data`, an argmax, a new tensor). The finding names the last
    place where a gradient was still required.
    """
    facts = event.get("gradient")
    if not facts or not facts.get("trainable"):
        return None
    how = facts.get("how")
    evidence = {
        name: facts[name] for name in ("trainable", "parameters", "how", "variable", "module") if facts.get(name)
    }
    if facts.get("rerun"):
        evidence["how it was found"] = _AGAIN
    if how == "no_grad":
        return Cause(
            title="the loss is computed where gradients are switched off",
            advice="Move the training step out of no_grad / inference_mode.",
            line=facts.get("line"),
            evidence=evidence,
            confidence=0.9,
        )
    at = f" by `{how}`" if how else ""
    return Cause(
        title=f"the loss is cut off from the parameters{at}"
        + (f" in {facts['module']}" if facts.get("module") else ""),
        advice="Keep tensors on the way to the loss: no .item(), .detach(), .data, argmax or torch.tensor(...) of "
        "computed values.",
        line=facts.get("line"),
        module=facts.get("module"),
        evidence=evidence,
        confidence=0.85 if facts.get("line") else 0.5,
    )


@family("own-gradient-wrong")
def own_gradient_wrong(event: Event) -> Cause | None:
    """The backward of an autograd.Function returns the wrong number or the wrong shapes of gradients for the inputs
    of its forward. By the time the engine notices, it has returned, so the traceback ends at `backward()`; the graph
    still knows the class.
    """
    found = event.get("own_gradient")
    if not found:
        return None
    told = re.search(r"got (\[.*?\]) but expected shape compatible with (\[.*?\])", message(event))
    count = re.search(r"expected (\d+), got (\d+)", message(event))
    name, argument = found["function"], found.get("argument")
    what = (
        f"a gradient of shape {told[1]} for {f'`{argument}`' if argument else 'an input'}, which has {told[2]}"
        if told
        else f"{count[2]} gradients for {count[1]} inputs"
        if count
        else "gradients that do not fit its inputs"
    )
    where = from_json(found.get("applied"))
    return Cause(
        title=f"{name}.backward returns {what}" + (f"; it is applied at {where}" if where else ""),
        advice="Return one gradient per input of forward, in order and of its shape: sum over what was broadcast, None for "
        "what needs none.",
        line=found["line"],
        op=name,
        evidence={"returns": found["returns"], **({"applied": str(where)} if where else {})},
        confidence=0.93,
    )


@family("inplace-modification")
def inplace_modification(event: Event) -> Cause | None:
    """A value that the backward pass needs was overwritten after the forward pass had saved it. To find it, Tensonde
    reruns the forward and checks the version counters of each op's saved values: this names the op that needs the
    value and the op that overwrites it. It is the same error if an optimizer steps a parameter between forward and
    backward, or if a statement of the loop works in place.
    """
    facts = event.get("modified")
    if facts is None:
        return None
    shape = facts.get("shape")
    evidence = {
        name: facts[name]
        for name in ("shape", "version", "changed_by", "needed_by", "parameter", "variable", "optimizer")
        if facts.get(name)
    }
    if facts.get("changed_by") == "optimizer step":
        return Cause(
            title=f"{facts['optimizer']}.step() changes {facts.get('parameter') or 'a parameter'} before a backward "
            "pass that needs its old value",
            advice="Call every backward() that uses these parameters before this step, or recompute the second loss after it.",
            line=facts.get("line"),
            module=(facts.get("parameter") or "").rpartition(".")[0] or None,
            evidence=evidence,
            op="step",
            confidence=0.9,
        )
    if facts.get("needed_by"):
        needed = from_json(facts.get("needed_line"))
        return Cause(
            title=f"`{facts['changed_by']}` overwrites in place what the backward of `{facts['needed_by']}` needs, "
            f"in {facts.get('module') or 'the forward'}",
            advice="Write it out of place (a = a * b instead of a *= b, no trailing underscore, inplace=False).",
            line=facts.get("built") or facts.get("line"),
            module=facts.get("module"),
            op=facts["changed_by"],
            evidence={
                **evidence,
                "called at": str(from_json(facts.get("line"))),
                "needed at": str(needed) if needed else "",
                "how it was found": _AGAIN,
            },
            confidence=0.95,
        )
    if facts.get("line"):
        what = f" ({facts['parameter']})" if facts.get("parameter") else ""
        return Cause(
            title=f"`{facts['variable']}`{what} is overwritten in place, and the backward pass needs its old value",
            advice="Change parameters after backward() and step(), not between forward and backward."
            if what
            else "Write it out of place, or on a clone.",
            module=(facts.get("parameter") or "").rpartition(".")[0] or None,
            line=facts["line"],
            op=facts.get("changed_by"),
            evidence=evidence,
            confidence=0.8,
        )
    return Cause(
        title=f"a tensor of shape {shape} that the backward pass needs was overwritten in place",
        advice="Look for +=, indexed assignment, methods ending in _ and inplace=True on a tensor of that shape.",
        evidence=evidence,
        confidence=0.5,
    )


@family("graph-used-twice")
def graph_used_twice(event: Event) -> Cause | None:
    """The backward pass reached a part of the graph that an earlier one has freed. There are four ways to get there:
    two losses that share a part of the graph, a state that an iteration takes over from the previous one, something
    computed once before the loop, and a tensor that a module keeps. The graph and the names in the loop show which
    one it is.
    """
    facts = event.get("twice")
    if facts is None:
        return None
    variable, line = facts.get("variable"), facts.get("line")
    evidence = {name: facts[name] for name in ("kind", "variable", "module", "tie") if facts.get(name)}
    match facts.get("kind"):
        case "loss":
            tie = facts.get("tie")
            through = f" through `{tie}`" if tie else ""
            return Cause(
                title=f"`{variable}.backward()` has freed the graph that this loss shares with it{through}",
                advice=(
                    f"Use {tie}.detach() for the first loss if it is not to train what made {tie}; else add"
                    if tie
                    else "Add"
                )
                + " both losses and call backward() once, or give the first retain_graph=True.",
                line=facts.get("tie_line") or line,
                evidence={**evidence, "first backward": str(from_json(line))},
                confidence=0.85,
            )
        case "carried":
            return Cause(
                title=f"`{variable}` is carried from one iteration to the next with its graph",
                advice=f"Detach it between iterations: {variable} = {variable}.detach() (for a tuple, each part).",
                line=line,
                evidence=evidence,
                confidence=0.9,
            )
        case "outside":
            return Cause(
                title=f"`{variable}` is computed once before the loop, and every iteration goes backward through it",
                advice="Compute it inside the loop, or detach it if it should not be trained.",
                line=line,
                evidence=evidence,
                confidence=0.9,
            )
        case "attribute":
            return Cause(
                title=f"{facts.get('module')} keeps `{variable}` with its graph from one call to the next",
                advice=f"Keep it detached: self.{variable} = ....detach().",
                line=line,
                module=facts.get("module"),
                evidence=evidence,
                confidence=0.9,
            )
    return Cause(
        title="the backward pass goes through a graph that an earlier one has freed",
        advice="Look for a tensor that outlives its iteration (a hidden state, a sum of losses) and detach it.",
        confidence=0.5,
    )


@family("loss-not-scalar")
def loss_not_scalar(event: Event) -> Cause | None:
    """backward() without arguments needs a single value. A loss with `reduction="none"`, or one that was never
    averaged, has many.
    """
    facts = event.get("reduction")
    if facts is None:
        return None
    how = f" ({facts['how']})" if facts.get("how") else ""
    return Cause(
        title=f"the loss has shape {facts.get('shape')}, and backward() needs a single value{how}",
        advice="Take the mean (or a weighted sum) before backward().",
        line=facts.get("line"),
        evidence={"loss.shape": facts.get("shape")},
        confidence=0.9,
    )


@family("backward-dtype")
def backward_dtype(event: Event) -> Cause | None:
    """A loss of a float output and an integer target raises only in the backward pass: it needs a float target."""
    if event.get("class") != "backward op" or not re.search(
        r"Found dtype (Long|Int|Double|Half) but expected", message(event)
    ):
        return None
    maker = (event.get("inputs") or {}).get("loss", {}).get("origin", {})
    return Cause(
        title=f"the loss mixes dtypes: {message(event).strip()}",
        advice="Convert the target to the output's dtype (.float()) where it is made.",
        line=maker.get("line"),
        evidence={"loss made by": code(maker.get("line"))},
        confidence=0.8,
    )


@family("backward-op")
def backward_op(event: Event) -> Cause | None:
    """Any other error in the backward pass. The finding names the forward line that made the op, found by rerunning
    the forward and looking for the node that the message names, or the `apply` of your own autograd.Function.
    """
    facts = event.get("forward_line")
    if not facts or not facts.get("line"):
        return None
    return Cause(
        title=f"the backward of `{facts['op']}` fails; the forward line that made it is {from_json(facts['line'])}",
        advice="The gradient must have the shape and dtype of the input of that op; look at what this line computes.",
        line=event.get("source") if facts.get("own") else facts["line"],
        module=facts.get("module"),
        op=facts["op"],
        evidence={
            "forward": str(from_json(facts["line"])),
            **({"how it was found": _AGAIN} if not facts.get("own") else {}),
        },
        confidence=0.8 if facts.get("only") else 0.6,
    )


@family("inplace-on-leaf")
def inplace_on_leaf(event: Event) -> Cause | None:
    """A parameter was changed in place while gradients are recorded. Initialization and manual updates belong under
    no_grad.
    """
    if not re.search(r"leaf Variable that requires grad .*in-place", message(event)):
        return None
    return Cause(
        title="a parameter is changed in place while gradients are recorded",
        advice="Do it under `with torch.no_grad():`, or with the functions of nn.init.",
        confidence=0.9,
    )


@family("scaler-order")
def scaler_order(event: Event) -> Cause | None:
    """A gradient scaler's calls are out of order: unscale_ twice between updates, step without a scaled backward or
    twice without an update, or an optimizer stepped without going through its scaler.

    Tensonde knows what was scaled and who stepped until then, so it names the call that must change, not the one that
    raised.
    """
    text = message(event)
    scaling = event.get("scaling") or {}
    if "unscale_() has already been called" in text:
        return Cause(
            title="scaler.unscale_() is called twice for one optimizer before scaler.update()",
            advice="Call scaler.update() once after every scaler.step(), and unscale_ once per optimizer step.",
            confidence=0.9,
        )
    if "has already been called since the last update" in text or "unscale_() is being called after step()" in text:
        return Cause(
            title="scaler.update() is missing: the scaler has stepped this optimizer already",
            advice="Call scaler.update() once after scaler.step(), at the end of every step.",
            confidence=0.93,
        )
    if "No inf checks were recorded" not in text and "_scale is None" not in text:
        return None
    past = scaling.get("step_line") if scaling.get("steps_on_scaled_gradients") else None
    if past is not None and "prior to update" in text:
        return Cause(
            title="the optimizer is stepped without its scaler: its gradients are still scaled",
            advice="Call scaler.step(optimizer) instead of optimizer.step(), then scaler.update().",
            line=past,
            evidence={"scale": scaling.get("scale")},
            confidence=0.93,
        )
    if not scaling.get("scaled_losses") and event.get("backward"):
        return Cause(
            title="scaler.step() finds no scaled gradients: the loss was never scaled",
            advice="Call scaler.scale(loss).backward(), not loss.backward().",
            line=event["backward"],
            evidence={"scaled_losses": 0},
            confidence=0.93,
        )
    return Cause(
        title="scaler.step() finds no scaled gradients for this optimizer",
        advice="Call scaler.scale(loss).backward(), not loss.backward(); an optimizer whose parameters get no "
        "gradient also fails this way.",
        confidence=0.8,
    )


@family("checkpoint-recompute")
def checkpoint_recompute(event: Event) -> Cause | None:
    """Activation checkpointing recomputes a forward in the backward pass, and the result is different: the forward
    depends on something that has changed meanwhile, such as a mode, a random number outside torch or the autocast
    state. If the checkpointed code tests something that it sets itself (a cache, a counter), or uses Python's or
    numpy's random numbers to decide, the finding names the line that decides.
    """
    if not re.search(
        r"torch\.utils\.checkpoint: .*(different number of tensors|different metadata)", message(event), re.DOTALL
    ):
        return None
    if found := event.get("recomputed"):
        return Cause(
            title=f"the checkpointed forward of {found['of']} depends on `{found['on']}`, which {found['why']}",
            advice="What a forward does must not depend on anything that it changes: compute it anew each time, or decide outside and pass it in.",
            line=found["line"],
            module=found.get("module"),
            op="checkpoint",
            evidence={"depends on": found["on"]},
            confidence=0.9,
        )
    return Cause(
        title="the checkpointed forward computes something different when it is rerun in the backward pass",
        advice="It must not depend on Python's random, on counters, or on modes that change between forward and "
        "backward.",
        confidence=0.8,
    )
