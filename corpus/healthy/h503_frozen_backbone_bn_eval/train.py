import torch
import torch.nn as nn

torch.manual_seed(0)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2),
        )

    def forward(self, x):
        return self.features(x).flatten(1)


class Classifier(nn.Module):
    def __init__(self, backbone, n_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(128, n_classes)
        for p in self.backbone.parameters():
            p.requires_grad = False

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()  # keep the statistics of the pre-training
        return self

    def forward(self, x):
        with torch.no_grad():
            f = self.backbone(x)
        return self.head(f)


protos = torch.randn(8, 1, 12, 12)


def images(y):
    return protos[y] + 0.4 * torch.randn(len(y), 1, 12, 12)


def fit(model, classes, epochs, lr):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    y = torch.randint(0, classes, (512,))
    x = images(y)
    for epoch in range(epochs):
        model.train()
        for idx in torch.randperm(512).split(32):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            acc = (model(x).argmax(1) == y).float().mean().item()
        print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f}")


backbone = Backbone()
fit(nn.Sequential(backbone, nn.Linear(128, 4)), 4, 3, 3e-3)
print("fine-tuning the head on 8 classes")
fit(Classifier(backbone, 8), 8, 6, 2e-2)
