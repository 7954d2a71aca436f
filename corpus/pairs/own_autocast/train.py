import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width=8, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.AvgPool2d(3, stride=2, padding=1)
        self.body = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.side = nn.Conv2d(3, 2 * width, 1)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        h = self.pool(F.relu(self.bn1(self.stem(x))))
        h = F.relu(self.bn2(self.body(h)))
        skip = F.interpolate(self.side(x), size=h.shape[-2:], mode="bilinear", align_corners=False)
        return self.head(self.drop((h + skip).mean((2, 3))))


def main():
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(90, 3, 12, 12, generator=generator)
    labels = (images[:, 0].mean((1, 2)) * 997).long() % 4
    images = (images - 0.45) / 0.25
    torch.manual_seed(0)
    net = Net()
    shadow = copy.deepcopy(net)
    loader = DataLoader(
        TensorDataset(images, labels), batch_size=16, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(5)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    step = 0
    for epoch in range(4):
        for x, y in loader:
            net.train()
            with torch.autocast("cpu", torch.bfloat16):
                logits = net(x)
            loss = F.cross_entropy(logits.float(), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mine, theirs in zip(shadow.parameters(), net.parameters()):
                    mine.mul_(0.99).add_(theirs, alpha=0.01)
            print(f"step {step} loss {loss.item():.8f}")
            step += 1
        scheduler.step()
        shadow.eval()
        with torch.no_grad():
            print(f"epoch {epoch} shadow {F.cross_entropy(shadow(images), labels).item():.8f}")


if __name__ == "__main__":
    main()
