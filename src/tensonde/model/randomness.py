"""Which ops draw random numbers, or may."""

from tensonde.model.ops import Trait, ops

RANDOM_OPS = ops(Trait.RANDOM)
