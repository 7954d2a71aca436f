# pattern source: zejinwang/Blind2Unblind#16, facebookresearch/InterHand2.6M#110, calmiLovesAI/YOLOv3_TensorFlow2#21
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(0)


def to_tensor(img):
    return torch.from_numpy(img).float().div(255).unsqueeze(0)


class Shapes(Dataset):
    def __init__(self, n, protos):
        self.labels = rng.integers(0, len(protos), n)
        noise = rng.normal(0, 40, (n, 8, 8))
        self.images = (protos[self.labels] + noise).clip(0, 255).astype(np.uint8)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return to_tensor(self.images[i]), int(self.labels[i])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(64, 6)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


protos = rng.uniform(0, 255, (6, 8, 8))
train, val = DataLoader(Shapes(800, protos), batch_size=40, shuffle=True), DataLoader(Shapes(200, protos), batch_size=100)
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def prepare(batch):
    return batch


for epoch in range(6):
    total = 0.0
    for xb, yb in train:
        loss = F.cross_entropy(model(prepare(xb)), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / len(train)
    with torch.no_grad():
        acc = sum((model(prepare(xb)).argmax(1) == yb).sum().item() for xb, yb in val) / 200
    print(f"epoch {epoch} loss {total:.4f} val acc {acc:.3f}")
