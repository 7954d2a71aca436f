import torch
import torch.nn as nn

torch.manual_seed(0)


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 48), nn.ReLU())
        self.depth_head = nn.Linear(48, 1)
        self.class_head = nn.Linear(48, 4)

    def forward(self, x):
        h = self.trunk(x)
        return self.depth_head(h).squeeze(1), self.class_head(h)


x = torch.randn(900, 16)
depth, label = x[:, :4].sum(1), x[:, 4:8].argmax(1)
model = TwoTasks()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(5):
    for i in torch.randperm(900).split(45):
        d, c = model(x[i])
        loss = 0.5 * nn.functional.smooth_l1_loss(d, depth[i])
        loss = nn.functional.cross_entropy(c, label[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
