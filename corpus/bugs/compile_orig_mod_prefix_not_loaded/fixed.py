# pattern source: huggingface/pytorch-image-models#2003, rasbt/LLMs-from-scratch#580, FareedKhan-dev/train-llm-from-scratch#37, pytorch/pytorch#141256
import io

import torch
import torch.nn as nn

torch.manual_seed(0)


def build():
    return nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def batch(n):
    x = torch.randn(n, 12)
    return x, (x[:, :4] * x[:, 4:8]).argmax(1)


def train(step_fn, model, steps, lr, tag):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    for step in range(steps):
        x, y = batch(128)
        loss = nn.functional.cross_entropy(step_fn(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % (steps // 5) == 0:
            print(f"{tag} step {step} loss {loss.item():.4f}")


def main():
    model = build()
    compiled = torch.compile(model, backend="aot_eager")
    train(compiled, model, 600, 5e-3, "pretrain")
    file = io.BytesIO()
    torch.save(model.state_dict(), file)

    file.seek(0)
    finetuned = build()
    finetuned.load_state_dict(torch.load(file), strict=False)
    train(finetuned, finetuned, 50, 1e-4, "finetune")
    x, y = batch(2000)
    print(f"accuracy {(finetuned(x).argmax(1) == y).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
