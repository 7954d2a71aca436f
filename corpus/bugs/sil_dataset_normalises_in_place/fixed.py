# pattern source: pytorch/vision#680, facebookresearch/pycls#21, PaddlePaddle/PaddleX#720
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Images(Dataset):
    def __init__(self, images, labels, mean=110.0, std=60.0):
        self.images, self.labels = images, labels
        self.mean, self.std = mean, std

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = (self.images[i] - self.mean) / self.std
        return img.unsqueeze(0), self.labels[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 12, 3, padding=1)
        self.fc = nn.Linear(12 * 16, 6)

    def forward(self, x):
        return self.fc(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1))


protos = torch.rand(6, 8, 8) * 200
labels = torch.randint(0, 6, (900,))
images = (protos[labels] + 70 * torch.randn(900, 8, 8)).clamp(0, 255)
train = DataLoader(Images(images[:700], labels[:700]), batch_size=50, shuffle=True)
held_out = Images(images[700:].clone(), labels[700:])
xv = torch.stack([held_out[i][0] for i in range(200)])
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(8):
    total = 0.0
    for xb, yb in train:
        loss = F.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / len(train)
    acc = (model(xv).argmax(1) == labels[700:]).float().mean().item()
    print(f"epoch {epoch} loss {total:.4f} val acc {acc:.3f}")
