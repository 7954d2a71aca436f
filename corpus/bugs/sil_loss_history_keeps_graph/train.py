import torch
import torch.nn as nn

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(4))
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


x = torch.randn(2048, 128)
y = torch.randint(0, 10, (2048,))
model = Encoder()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
total_loss = 0
for epoch in range(3):
    for idx in torch.randperm(2048).split(64):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total_loss += loss
    print(f"epoch {epoch} mean loss {float(total_loss) / (32 * (epoch + 1)):.4f}")
