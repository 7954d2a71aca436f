"""What Tensonde puts into torch's hot paths, and how it is taken out for a while and put back.

`Swap` exchanges the code of `nn.Module.__call__` and leaves the function object where it is: no class is changed, so no
subclass loses its attribute caches (assigning to `nn.Module.__call__` takes 70 µs, and slows down what runs next), the
program sees torch's own function, and a wrapper that was put around it meanwhile stays. `Patch` replaces a function of
a module by a wrapper, and takes that out only where it still stands. Wrappers that are called once per step stay where they are and
ask `PATCHES.out` first: to take them out would change classes, or functions that a compiled program is guarded by.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from tensonde.adapters.torch import seams


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    # A global of torch's module. As a constant of this code, the compiler could not read it.
    return _tensonde_call(self, *args, **kwargs)  # type: ignore[name-defined]  # noqa: F821


class Swap:
    """The method `owner.name(self, *args, **kwargs)`, without free variables, which runs its own code or calls `instead`."""

    def __init__(self, owner: Any, name: str, instead: Callable[..., Any], why: str) -> None:
        self.seam = owner, name, why
        self._function = function = getattr(owner, name)
        self._own: CodeType = function.__code__
        self.code: CodeType = _call.__code__
        function.__globals__["_tensonde_call"] = instead

    def put(self) -> None:
        self._function.__code__ = self.code

    def lift(self) -> None:
        self._function.__code__ = self._own


def copied(function: Any) -> Any:
    """The function as it is now, whatever becomes of its code."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class Patch:
    """A function of a module, and the wrapper around it."""

    def __init__(self, owner: Any, name: str, wrapper: Callable[..., Any], why: str) -> None:
        self.seam = owner, name, why
        self._owner, self._name, self._wrapper = owner, name, wrapper
        self._original = getattr(owner, name)

    def put(self) -> None:
        """Unless other code has replaced the function meanwhile."""
        if getattr(self._owner, self._name) is self._original:
            setattr(self._owner, self._name, self._wrapper)

    def lift(self) -> None:
        """Unless other code has wrapped it: then it stays inside and passes on."""
        if getattr(self._owner, self._name) is self._wrapper:
            setattr(self._owner, self._name, self._original)


class Patches:
    def __init__(self) -> None:
        self._modules: list[Swap | Patch] = []
        self._losses: list[Swap | Patch] = []
        self._swaps: list[Swap] = []
        self.out = False
        """Tensonde rests, or only glances at the loss, the gradients and the parameters of this step."""
        self.asleep = False
        """It rests."""
        self.count: Callable[[Any], None] = lambda optimizer: None
        """Called with the optimizer that has stepped, while it rests."""
        self._aside = False

    def add(self, patch: Swap | Patch, *, losses: bool = False) -> None:
        """Puts it in. `losses`: this one is needed for a glance, too."""
        seams.note(*patch.seam)
        patch.put()
        (self._losses if losses else self._modules).append(patch)
        if isinstance(patch, Swap):
            self._swaps.append(patch)

    def lift(self, *, losses: bool) -> None:
        """Takes them out: all, or all but those of losses."""
        if not self.out:
            self.out = True
            for patch in self._modules:
                patch.lift()
        for patch in self._losses:
            if losses:
                patch.lift()
            else:
                patch.put()

    def put(self) -> None:
        self.back()
        if self.out:
            self.out = False
            for patch in (*self._modules, *self._losses):
                patch.put()

    def aside(self) -> None:
        """Gives methods their own code back, until `back`: a root runs, and nothing is wanted of the modules in it."""
        self._aside = True
        for swap in self._swaps:
            swap.lift()

    def back(self) -> None:
        if self._aside:
            self._aside = False
            if not self.out:
                for swap in self._swaps:
                    swap.put()


PATCHES = Patches()
"""One per process, as there is one torch."""
