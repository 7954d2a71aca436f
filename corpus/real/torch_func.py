"""An ensemble by torch.func: functional_call, vmap, grad and a Jacobian, updated without an optimizer."""

import torch
from fingerprint import report
from torch import nn
from torch.func import functional_call, grad_and_value, jacrev, stack_module_state, vmap

torch.manual_seed(0)
nets = [nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1)) for _ in range(4)]
params, buffers = stack_module_state(nets)
params = {name: value.detach() for name, value in params.items()}
skeleton = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1)).to("meta")


def loss_of(params, buffers, x, y):
    return ((functional_call(skeleton, (params, buffers), (x,)) - y) ** 2).mean()


def output(params, x):
    return functional_call(skeleton, params, (x,))


for step in range(300):
    x = torch.rand(4, 32, 2) * 2 - 1
    y = (x[..., :1] * 2).sin() * x[..., 1:]
    gradients, losses = vmap(grad_and_value(loss_of))(params, buffers, x, y)
    params = {name: value - 0.1 * gradients[name] for name, value in params.items()}
    if step % 100 == 0:
        print(step, [f"{loss:.6f}" for loss in losses.tolist()])
one = {name: value[0] for name, value in params.items()}
jacobian = vmap(jacrev(output, argnums=1), in_dims=(None, 0))(one, torch.rand(5, 2))
report(params, jacobian)
