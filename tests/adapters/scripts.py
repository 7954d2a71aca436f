"""What the scripts of these tests have in common."""

PRELUDE = """
import copy, gc, json, os, pickle, sys, warnings, weakref
from collections import namedtuple
from dataclasses import dataclass
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)

def leave(value):
    with open(os.environ["RESULT"], "w") as file:
        json.dump(value, file)

def norm(tensor):
    return float(tensor.detach().double().norm())
"""


def script(body: str) -> str:
    import textwrap

    return PRELUDE + textwrap.dedent(body)
