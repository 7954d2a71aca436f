"""A graph convolution on a sparse adjacency matrix, and sparse gradients of an embedding."""

import torch
from fingerprint import report
from torch import nn

torch.manual_seed(0)
N, CLASSES = 120, 4
labels = torch.randint(0, CLASSES, (N,))
same = labels[:, None] == labels[None, :]
edges = (torch.rand(N, N) < torch.where(same, 0.2, 0.01)) | torch.eye(N, dtype=torch.bool)
degree = edges.sum(1, keepdim=True).float()
adjacency = (edges.float() / degree).to_sparse()
adjacency_csr = (edges.float() / degree).to_sparse_csr()


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(N, 16, sparse=True)
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, CLASSES)
        self.drop = nn.Dropout(0.3)

    def forward(self, adjacency, csr):
        hidden = torch.sparse.mm(adjacency, self.first(self.embedding.weight)).relu()
        return csr @ self.second(self.drop(hidden))


class Embedded(nn.Module):
    """Looks the nodes up, so that the embedding's gradient is sparse."""

    def __init__(self, gcn):
        super().__init__()
        self.gcn = gcn

    def forward(self, nodes, adjacency):
        features = self.gcn.embedding(nodes)
        hidden = torch.sparse.mm(adjacency, self.gcn.first(features)).relu()
        return self.gcn.second(self.gcn.drop(hidden))


gcn = GCN()
model = Embedded(gcn)
sparse = torch.optim.SparseAdam(gcn.embedding.parameters(), lr=0.02)
dense = torch.optim.Adam([*gcn.first.parameters(), *gcn.second.parameters()], lr=0.01)
nodes, train = torch.arange(N), torch.arange(N) % 3 != 0
for epoch in range(60):
    model.train()
    sparse.zero_grad()
    dense.zero_grad()
    loss = nn.functional.cross_entropy(model(nodes, adjacency)[train], labels[train])
    loss.backward()
    sparse.step()
    dense.step()
model.eval()
with torch.no_grad():
    accuracy = (gcn(adjacency, adjacency_csr)[~train].argmax(1) == labels[~train]).float().mean()
print(f"{loss.item():.6f} {accuracy.item():.4f}")
report(model, sparse, dense)
