"""A minimal adapter: small torch trainings turned into digest rows, to calibrate the recommended set on."""

from __future__ import annotations

import torch
from watch_rows import row, rows

from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.watch.engine import Engine
from tensonde.watch.recommended import recommended


class Watched:
    """Digests of module outputs, the loss, gradients, values and buffers of `model` at every step."""

    def __init__(self, model, optimizer):
        self.engine, self.sites, self.rows, self.hits, self.step = Engine(recommended()), {}, [], [], 0
        self.model = model
        self.trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, module in model.named_modules():
            module.register_forward_hook(self._output(name, type(module).__name__))

    def _output(self, name, type_):
        def hook(_module, _inputs, output):
            if isinstance(output, torch.Tensor):
                self.note(name, Role.OUT, Kind.MODULE, output, type=type_)
                if output.requires_grad:
                    output.register_hook(lambda g: self.note(name, Role.GRAD, Kind.MODULE, g, type=type_))

        return hook

    def note(self, name, role, kind, tensor, phase=Phase.FORWARD, **facts):
        key = (name, role)
        if key not in self.sites:
            site = self.sites[key] = Site(len(self.sites), name, role, kind, shape=tuple(tensor.shape), **facts)
            self.engine.add_site(site)
        values = tensor.detach().to(torch.float64).numpy()
        self.rows.append(row(values, self.sites[key].id, self.step, phase=phase))

    def loss(self, value):
        self.note("loss", Role.OUT, Kind.LOSS, value)
        return value

    def end_step(self):
        for name, p in self.model.named_parameters():
            facts = {"trainable": p.requires_grad and id(p) in self.trained}
            if p.grad is not None:
                self.note(name, Role.GRAD, Kind.PARAMETER, p.grad, Phase.BACKWARD, **facts)
            self.note(name, Role.VALUE, Kind.PARAMETER, p, Phase.OPTIMIZER, **facts)
        for name, b in self.model.named_buffers():
            self.note(name, Role.VALUE, Kind.BUFFER, b, Phase.OPTIMIZER)
        self.hits += self.engine.evaluate(rows(*self.rows))
        self.rows, self.step = [], self.step + 1

    def summary(self):
        return sorted({(hit.condition, hit.site) for hit in self.hits})


def train(model, optimizer, loss_of, steps=160, scheduler=None):
    watched = Watched(model, optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = watched.loss(loss_of(model))
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        watched.end_step()
    return watched
