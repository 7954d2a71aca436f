# pattern source: leonardoaraujosantos/DLMatFramework#16, DeepFD/AutoTrainer fault class 'improper weight initialisation', He et al. 2015
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def weights_init(m):
    if isinstance(m, (nn.Linear, nn.Conv2d)):
        nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
        nn.init.zeros_(m.bias)


def conv_block(c_in, c_out):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1), nn.ReLU())


class DeepNet(nn.Module):
    def __init__(self, classes=8):
        super().__init__()
        self.features = nn.Sequential(
            conv_block(1, 8), conv_block(8, 8), nn.MaxPool2d(2), conv_block(8, 16), conv_block(16, 16), nn.MaxPool2d(2)
        )
        self.classifier = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


protos = torch.randn(8, 1, 8, 8)
y = torch.randint(0, 8, (800,))
x = protos[y] + 0.5 * torch.randn(800, 1, 8, 8)
loader = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True)
model = DeepNet()
model.apply(weights_init)
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for epoch in range(6):
    total = 0.0
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / len(loader)
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    print(f"epoch {epoch} loss {total:.4f} acc {acc:.3f}")
