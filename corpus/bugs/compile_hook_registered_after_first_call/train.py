# pattern source: pytorch/pytorch#117758, pytorch/pytorch#117265, pytorch/pytorch#115750
import torch
import torch.nn as nn

torch.manual_seed(4)


class SparseCoder(nn.Module):
    def __init__(self, d=12, k=48):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(d, k), nn.ReLU())
        self.decode = nn.Linear(k, d)

    def forward(self, x):
        return self.decode(self.hidden(x))


codes = {}


def keep(module, args, output):
    codes["h"] = output


def main():
    model = SparseCoder()
    compiled = torch.compile(model, backend="aot_eager")
    compiled(torch.randn(64, 12))
    model.hidden.register_forward_hook(keep)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    basis = torch.randn(5, 12)
    for step in range(120):
        x = torch.randn(64, 5) @ basis
        out = compiled(x)
        rec = nn.functional.mse_loss(out, x)
        penalty = codes["h"].abs().mean() if "h" in codes else torch.zeros(())
        loss = rec + 0.5 * penalty
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 19:
            print(f"step {step} loss {loss.item():.4f} penalty {penalty.item():.4f}")
    with torch.no_grad():
        print(f"mean activation {model.hidden(x).mean().item():.4f}")


if __name__ == "__main__":
    main()
