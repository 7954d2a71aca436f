import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


nodes = 40
edges = torch.stack((torch.randint(0, nodes - 4, (160,)), torch.randint(0, nodes, (160,))))
degree = torch.bincount(edges[0], minlength=nodes).float()
scale = degree.pow(-0.5)
values = scale[edges[0]] * scale[edges[1]]
adjacency = torch.sparse_coo_tensor(edges, values, (nodes, nodes)).coalesce()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x, adjacency):
        hidden = torch.relu(torch.sparse.mm(adjacency, self.first(x)))
        return torch.sparse.mm(adjacency, self.second(hidden))


x, y = torch.randn(nodes, 6), torch.randint(0, 3, (nodes,))
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(60):
    loss = F.cross_entropy(model(x, adjacency), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
