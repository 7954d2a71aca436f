"""The plain values among a cell's attributes (p, eps, momentum, in_features), in PyTorch's words, which rules and comparisons read."""

from __future__ import annotations

from typing import Any

RENAMED: dict[str, dict[str, str]] = {
    "Dense": {"in_channels": "in_features", "out_channels": "out_features"},
    "Embedding": {"vocab_size": "num_embeddings", "embedding_size": "embedding_dim"},
    "LayerNorm": {"epsilon": "eps"},
    "LeakyReLU": {"alpha": "negative_slope"},
}
"""By the type of a cell of MindSpore's own: its attributes that PyTorch calls otherwise."""
_OURS = ("training", "cls_name", "requires_grad")
_MOST = 32


def settings_of(cell: Any) -> dict[str, Any]:
    words = RENAMED.get(type(cell).__name__, {}) if type(cell).__module__.startswith("mindspore.") else {}
    found: dict[str, Any] = {}
    for name, value in vars(cell).items():
        if name.startswith("_") or name in _OURS:
            continue
        if isinstance(value, bool | int | float | str):
            found[words.get(name, name)] = value
        elif isinstance(value, tuple | list) and len(value) <= 8 and all(isinstance(v, int | float) for v in value):
            found[words.get(name, name)] = list(value)
    return dict(list(found.items())[:_MOST])
