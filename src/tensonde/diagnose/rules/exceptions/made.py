"""Exceptions of objects that were made in a way that a later call does not take: the line that made them."""

from __future__ import annotations

from tensonde.diagnose.exceptions import Cause, Event, family


@family("class-called-as-function")
def class_called_as_function(event: Event) -> Cause | None:
    """A class of layers or losses is called with tensors as if it were an instance, so the tensors are taken for its
    options. Or a name was assigned to one of the program's own classes, without parentheses, and is used as a model.
    The finding names the line that assigns the class without creating an instance, otherwise the call.
    """
    found = event.get("class_called")
    if not found:
        return None
    kind = found["class"]
    return Cause(
        title=f"`{found['called']}` is the class {kind}, not an instance of it: parentheses are missing",
        advice=f"Create an instance first: {kind}()"
        + ("." if found["named"] else f"(output, target), or keep {kind}() and call that."),
        line=found["line"],
        evidence={"class": kind},
        confidence=0.95,
    )


@family("shared-memory-written")
def shared_memory_written(event: Event) -> Cause | None:
    """`expand` repeats a tensor without copying it: many elements share one place in memory, so they cannot be
    written one by one. An optimizer writes its parameters in place. The finding names the line that makes the tensor.
    """
    found = event.get("overlapping")
    if not found:
        return None
    name = found.get("name", "the tensor")
    return Cause(
        title=f"elements of {name} {found['shape']} share memory (it was expanded), so it cannot be written in place",
        advice="Make it with repeat, or clone() it after expand.",
        line=found.get("line"),
        module=found.get("module"),
        evidence={"tensor": name, "shape": found["shape"]},
        confidence=0.95,
    )


@family("activation-kept-on-module")
def activation_kept_on_module(event: Event) -> Cause | None:
    """A module keeps a tensor of its last forward as an attribute, together with its graph. Such a tensor cannot be
    copied, so the module cannot be copied either. The finding names the line that keeps the tensor.
    """
    found = event.get("copied")
    if not found:
        return None
    name = f"{found['module']}.{found['attribute']}".lstrip(".")
    return Cause(
        title=f"{name} is a tensor of the graph (made by {found['op']}), so {found['type']} cannot be copied",
        advice="Remove what makes it a computed weight before copying (torch.nn.utils.parametrizations can be copied)."
        if found["computed"]
        else f"Keep it without its graph: self.{found['attribute']} = x.detach().",
        line=found.get("line"),
        module=found["module"],
        evidence={"attribute": name, "shape": found["shape"]},
        confidence=0.9,
    )


@family("half-weights-with-scaler")
def half_weights_with_scaler(event: Event) -> Cause | None:
    """GradScaler protects gradients of float32 weights from underflow. Weights that are themselves float16 have
    float16 gradients, which it refuses. The finding names the line that converted the weights to half precision.
    """
    found = event.get("halved")
    if not found:
        return None
    return Cause(
        title=f"{found['count']} parameters are float16 ({found['name']}), GradScaler needs float32 weights",
        advice="Leave the model in float32: autocast casts by itself where it runs; or train in bfloat16 without a "
        "scaler.",
        line=found.get("line"),
        evidence={"parameter": found["name"], "count": found["count"]},
        confidence=0.93,
    )
