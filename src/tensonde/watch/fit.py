"""Which sites a named condition fits: decided by facts about the site, never by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensonde.model.ops import Trait, ops
from tensonde.model.site import Kind, Role, Site

TANH = ops(Trait.TANH)
SIGMOID = ops(Trait.SIGMOID)
RECTIFIER = ops(Trait.ZERO_BELOW)


@dataclass(frozen=True)
class Fit:
    """`words` say in the documentation what `test` accepts."""

    words: str
    test: Callable[[Site], bool]

    def __call__(self, site: Site) -> bool:
        return self.test(site)


def _activation(types: frozenset[str]) -> Callable[[Site], bool]:
    return lambda site: site.role is Role.OUT and site.type.lower() in types


def _gradient(site: Site) -> bool:
    return site.role in (Role.GRAD, Role.GRAD_IN) and (site.kind is not Kind.PARAMETER or site.trainable is not False)


def _weight(site: Site) -> bool:
    return site.kind is Kind.PARAMETER and site.role is Role.VALUE and site.trainable is True


ANY = Fit("any site", lambda site: True)
OUTPUT = Fit("outputs of modules and ops", lambda site: site.role is Role.OUT and site.kind in (Kind.MODULE, Kind.OP))
MODULE_OUTPUT = Fit("outputs of modules", lambda site: site.role is Role.OUT and site.kind is Kind.MODULE)
WEIGHT = Fit("values of trainable parameters", _weight)
MATRIX = Fit(
    "values of trainable parameters with two or more dimensions",
    lambda site: _weight(site) and len(site.shape) >= 2,
)
UPDATE = Fit(
    "updates of trainable parameters",
    lambda site: site.kind is Kind.PARAMETER and site.role is Role.UPDATE and site.trainable is not False,
)
ANY_UPDATE = Fit("updates", lambda site: site.role is Role.UPDATE)
GRADIENT = Fit("gradients", _gradient)
SETTLED_GRADIENT = Fit(
    "gradients of parameters and modules",  # inside of a compiled op, an Inf may be masked right afterwards
    lambda site: _gradient(site) and site.kind is not Kind.OP,
)
WEIGHT_GRADIENT = Fit(
    "gradients of trainable parameters",
    lambda site: site.kind is Kind.PARAMETER and site.role is Role.GRAD and site.trainable is True,
)
MATRIX_GRADIENT = Fit(
    "gradients of trainable parameters with two or more dimensions",
    lambda site: WEIGHT_GRADIENT(site) and len(site.shape) >= 2,
)
BUFFER = Fit("buffers", lambda site: site.kind is Kind.BUFFER)
LOSS = Fit("the loss", lambda site: site.kind is Kind.LOSS and site.role in (Role.OUT, Role.VALUE))
ANY_OUT = Fit("outputs", lambda site: site.role is Role.OUT)
TANH_OUT = Fit("outputs of Tanh", _activation(TANH))
SIGMOID_OUT = Fit("outputs of Sigmoid", _activation(SIGMOID))
RECTIFIER_OUT = Fit("outputs of ReLU, ReLU6, Threshold", _activation(RECTIFIER))
