import torch
import torch.nn as nn

torch.manual_seed(0)
protos = torch.randn(4, 1, 8, 8)
labels = torch.randint(0, 4, (640,))
images = protos[labels] + 0.5 * torch.randn(640, 1, 8, 8)


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.fc = nn.Linear(8 * 16, 4)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv(x)), 2)
        return self.fc(x.flatten(1))


net = SmallCNN()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
for epoch in range(4):
    for idx in torch.randperm(640).split(32):
        optimizer.zero_grad()
        out = net(images[idx])
        loss = criterion(out, labels[idx])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
