"""Three ways to look at gradients, as in MindSpore's guide to dynamic graph debugging, in PyTorch.

`python examples/hooks.py`, or `tensonde run examples/hooks.py` to have the hooks noted in a recording.
"""

import torch
from torch import nn

import tensonde


def value_and_gradients(function, *numbers):
    inputs = [torch.tensor(float(number), requires_grad=True) for number in numbers]
    value = function(*inputs)
    value.backward()
    return value.item(), tuple(x.grad.item() for x in inputs)


# 1. A hook on a tensor; here it doubles the gradient that flows back through z.
def doubled(x, y):
    z = x * y
    tensonde.hook(z, lambda grad: grad * 2)
    return z * y


print("1.", value_and_gradients(doubled, 1, 2))

# 2. An identity in the forward pass that shows the gradient there.
look = tensonde.HookBackward(lambda grad: print("2. gradient", grad.item()))


def looked_at(x, y):
    z = x * y
    z = look(z)
    return z * y


print("2.", value_and_gradients(looked_at, 1, 2))

# 3. A hook on a module. (The guide differentiates with respect to inputs 0 and 1, and its net has one input only.)
relu = nn.ReLU()


def show(module, grad_input, grad_output):
    print("3. backward input", [g.item() for g in grad_input], "output", [g.item() for g in grad_output])


handle = tensonde.hook_backward(relu, show)
print("3.", value_and_gradients(lambda x: relu(x + x), 1))
handle.remove()
