"""A training in two wordings, and ways to spoil it, for the tests of comparisons."""

REFERENCE = """
import torch
from torch import nn
from torch.nn import functional as F

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))

class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, 4)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.drop(x.mean(1)))

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(1)
for step in range(6):
    ids = torch.randint(0, 20, (8, 5), generator=generator)
    loss = F.cross_entropy(model(ids), ids.sum(1) % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

PORT = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.ln = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, hidden):
        return self.mlp(self.ln(hidden)) + hidden

class Net(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.table = nn.Embedding(20, size)
        self.layers = nn.Sequential(Layer(size), Layer(size))
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(size, 4)

    def forward(self, tokens):
        hidden = self.layers(self.table(tokens))
        return self.out(self.dropout(hidden.sum(1) / tokens.shape[1]))

torch.manual_seed(0)
net = Net()
adam = torch.optim.Adam(net.parameters(), lr=1e-2)
source = torch.Generator().manual_seed(1)
criterion = nn.CrossEntropyLoss()
for step in range(6):
    tokens = torch.randint(0, 20, (8, 5), generator=source)
    adam.zero_grad()
    criterion(net(tokens), tokens.sum(dim=1).remainder(4)).backward()
    adam.step()
"""


def spoilt(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)
