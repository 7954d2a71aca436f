import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Scans(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        size = 16 if i < 64 else 15
        image = torch.randn(1, size, size, generator=torch.Generator().manual_seed(i))
        return image, (image > 0.5).float()


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 8, 3, padding=1)
        self.mid = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x):
        skip = torch.relu(self.down(x))
        h = torch.relu(self.mid(nn.functional.max_pool2d(skip, 2)))
        h = nn.functional.interpolate(h, size=skip.shape[-2:])
        h = torch.cat([skip, h], 1)
        return self.up(h)


model = UNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(2):
    for x, y in DataLoader(Scans(), batch_size=16):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
