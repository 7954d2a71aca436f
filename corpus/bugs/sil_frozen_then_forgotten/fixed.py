import torch
import torch.nn as nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU())
        self.classifier = nn.Linear(48, 4)

    def forward(self, x):
        return self.classifier(self.encoder(x))


def set_trainable(model, prefix, flag):
    for name, p in model.named_parameters():
        if name.startswith(prefix):
            p.requires_grad = flag


x = torch.randn(800, 12)
y = (x[:, 0] * x[:, 1] > 0).long() + 2 * (x[:, 2] * x[:, 3] > 0).long()
model = Model()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
set_trainable(model, "encoder.", False)
for epoch in range(8):
    if epoch == 2:
        set_trainable(model, "encoder.", True)
    for idx in torch.randperm(800).split(50):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
