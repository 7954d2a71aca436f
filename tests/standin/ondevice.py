"""`import ondevice` before a program's first line: whatever it makes without naming a device is on the stand-in."""

from __future__ import annotations

import torch

import standin

torch.set_default_device("standin")
assert standin.ext is not None
