import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
BATCH = 32


class Model(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.hidden = hidden
        self.lstm = nn.LSTM(3, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 2)

    def forward(self, x):
        h0 = torch.zeros(1, BATCH, self.hidden)
        c0 = torch.zeros(1, BATCH, self.hidden)
        out, _ = self.lstm(x, (h0, c0))
        return self.fc(out[:, -1])


x = torch.randn(200, 10, 3)
y = (x[:, -1, 0] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
model = Model()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(2):
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
