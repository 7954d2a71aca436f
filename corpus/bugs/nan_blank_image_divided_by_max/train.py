import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(5)


class Scans(Dataset):
    def __init__(self, n=320):
        self.label = torch.randint(0, 2, (n,))
        self.image = torch.rand(n, 1, 10, 10) * 200
        self.image[:, :, 2:5, 2:5] += 80.0 * self.label.view(-1, 1, 1, 1)
        self.image[177] = 0.0

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        image = self.image[i]
        return image / image.max(), self.label[i]


model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 2))
criterion = nn.CrossEntropyLoss()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(3):
    for image, label in DataLoader(Scans(), batch_size=16, shuffle=True):
        loss = criterion(model(image), label)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
