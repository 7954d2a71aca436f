import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 6, 5)
        self.fc = nn.Linear(6 * 20, 32)
        self.out = nn.Linear(32, 2)

    def forward(self, x):
        h = torch.relu(self.conv(x)).flatten(1)
        h = torch.relu(self.fc(h))
        return self.out(h)


signal = torch.randn(600, 1, 24)
label = (signal[:, 0, :12].sum(1) > 0).long()
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(6):
    for idx in torch.randperm(600).split(30):
        loss = nn.functional.cross_entropy(net(signal[idx]), label[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
