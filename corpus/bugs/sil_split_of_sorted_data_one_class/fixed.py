import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
labels = torch.arange(1200) // 400
inputs = torch.randn(3, 9)[labels] + 0.5 * torch.randn(1200, 9)
full = TensorDataset(inputs, labels)
train = Subset(full, torch.randperm(1200)[:400].tolist())
loader = DataLoader(train, batch_size=32, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(9, 24)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(x)))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(6):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
