"""These tests need MindSpore, which has an environment of its own: `make test-mindspore`."""

from __future__ import annotations

from tensonde.adapters.registry import installed

collect_ignore_glob = [] if "mindspore" in installed() else ["test_*.py"]
