"""The rules, one folder per subject. Importing this package registers them all."""

from __future__ import annotations

import importlib

ORDER = (
    "model.attention",
    "numbers.precision",
    "gradients.blocked",
    "gradients.clamped",
    "model.compiled",
    "exceptions.crash",
    "data.batches",
    "optimization.unread_hyperparameters",
    "gradients.dying",
    "exceptions.arrays",
    "exceptions.autograd",
    "exceptions.data_loading",
    "exceptions.domain",
    "exceptions.made",
    "exceptions.misuse",
    "exceptions.model",
    "exceptions.packing",
    "exceptions.shapes",
    "exceptions.types",
    "exceptions.other",
    "gradients.vanishing",
    "gradients.faint",
    "gradients.autograd_functions",
    "gradients.gradients",
    "numbers.watchpoints",
    "model.hook_growth",
    "model.hooks",
    "gradients.initialisation",
    "data.layout",
    "optimization.lbfgs",
    "numbers.leaps",
    "optimization.learning_rate",
    "gradients.linearity",
    "model.loading",
    "optimization.losses",
    "model.membership",
    "model.memory",
    "model.modes",
    "data.multilabel",
    "optimization.objective",
    "optimization.optimizers",
    "numbers.origins",
    "data.padding",
    "data.padding_index",
    "optimization.reach",
    "numbers.reductions",
    "optimization.resuming",
    "data.rewritten_data",
    "data.samplers",
    "numbers.scales",
    "optimization.schedules",
    "model.sharing",
    "model.recurrent_states",
    "model.running_statistics",
    "data.targets",
)
"""Every module with rules. The order decides between findings of the same severity and step, and between families of exceptions:
the first that recognises an event explains it."""

for _module in ORDER:
    importlib.import_module(f"{__name__}.{_module}")
