import torch
import torch.nn as nn

torch.manual_seed(0)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.fc = nn.Linear(8 * 16, 3)

    def forward(self, x):
        x = nn.functional.avg_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.fc(x.flatten(1))


protos = torch.randn(3, 1, 8, 8)
y = torch.randint(0, 3, (300,))
x = protos[y] + 0.5 * torch.randn(300, 1, 8, 8)
model = Small()
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(2):
    total = 0.0
    for i in torch.randperm(300).tolist():
        loss = criterion(model(x[i : i + 1]), y[i : i + 1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / 300:.4f}")
