"""Graph attention and a graph-level classifier of PyTorch Geometric."""

# needs: torch_geometric
import torch
from fingerprint import report
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

torch.manual_seed(0)


def graph(k):
    n = 12
    label = k % 2
    edges = torch.stack([torch.arange(n), (torch.arange(n) + 1 + label * 2) % n])
    return Data(x=torch.randn(n, 6) + label * 0.5, edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.tensor([label]))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GATConv(6, 8, heads=4, dropout=0.1), GCNConv(32, 16)
        self.head = torch.nn.Linear(16, 2)

    def forward(self, data):
        h = self.first(data.x, data.edge_index).relu()
        h = self.second(h, data.edge_index).relu()
        return self.head(global_mean_pool(h, data.batch))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
loader = DataLoader([graph(k) for k in range(96)], batch_size=16, shuffle=True)
for epoch in range(8):
    for data in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(data), data.y)
        loss.backward()
        optimizer.step()
    print(epoch, f"{loss.item():.6f}")
report(model, optimizer)
