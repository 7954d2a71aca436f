# pattern source: pytorch/pytorch#197887
import torch
import torch.nn as nn

torch.manual_seed(3)
W = torch.randn(3, 10)


class SeqRegressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(10, 3, bias=False)

    def forward(self, x):
        return self.enc(x).mean(1)


def sample(n=32, t=6):
    x = torch.randn(n, t, 10) + torch.randn(n, 1, 10)
    return x, x.mean(1) @ W.t()


def main():
    model = SeqRegressor()
    compiled = torch.compile(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    buf = torch.empty(32, 6, 10)
    x, next_y = sample()
    buf.copy_(x)
    for step in range(40):
        y = next_y
        loss = nn.functional.mse_loss(compiled(buf), y)
        next_x, next_y = sample()
        opt.zero_grad()
        loss.backward()
        opt.step()
        buf.copy_(next_x)
        if step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
