# pattern source: ultralytics/yolov5#292, PolymathicAI/the_well#77, D-X-Y/NAS-Bench-201#19
import torch
import torch.nn as nn

torch.manual_seed(0)
EPOCHS = 20
x = torch.randn(640, 10)
y = x @ torch.randn(10, 1) + 0.5 * torch.sin(3 * x[:, :1]) + 0.3 * torch.randn(640, 1)


def build():
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.035, momentum=0.9)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: 0.02 + 0.98 * (1 - e / EPOCHS) ** 2)
    return model, opt, sched


def run(model, opt, sched, epochs):
    for epoch in epochs:
        for idx in torch.randperm(640).split(16):
            loss = nn.functional.mse_loss(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            full = nn.functional.mse_loss(model(x), y).item()
        print(f"epoch {epoch} loss {full:.4f} lr {opt.param_groups[0]['lr']:.4f}")
        sched.step()


model, opt, sched = build()
run(model, opt, sched, range(0, 15))
ckpt = {"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": 15}

# a second job picks the training up
model, opt, sched = build()
model.load_state_dict(ckpt["model"])
opt.load_state_dict(ckpt["opt"])
run(model, opt, sched, range(ckpt["epoch"], EPOCHS))
