import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, qmax):
        q = torch.round(x / scale)
        ctx.save_for_backward((q.abs() <= qmax))
        return q.clamp(-qmax, qmax) * scale

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None


class QuantLinear(nn.Linear):
    def __init__(self, n_in, n_out, bits=4):
        super().__init__(n_in, n_out)
        self.qmax = 2 ** (bits - 1) - 1
        self.register_buffer("act_max", torch.tensor(1.0))

    def forward(self, x):
        if self.training:
            self.act_max.lerp_(x.detach().abs().max(), 0.1)
        x = FakeQuant.apply(x, self.act_max / 127, 127)
        w = FakeQuant.apply(self.weight, self.weight.detach().abs().max() / self.qmax, self.qmax)
        return F.linear(x, w, self.bias)


centers = torch.randn(6, 16)
y = torch.randint(0, 6, (1200,))
x = centers[y] + torch.randn(1200, 16)
model = nn.Sequential(QuantLinear(16, 48), nn.ReLU(), QuantLinear(48, 6))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    model.train()
    for idx in torch.randperm(1000).split(50):
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        acc = (model(x[1000:]).argmax(1) == y[1000:]).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} val acc {acc:.3f}")
