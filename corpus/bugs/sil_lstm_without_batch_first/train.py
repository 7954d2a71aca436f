import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self, vocab=16, d=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.lstm = nn.LSTM(d, 32)
        self.head = nn.Linear(32, 2)

    def forward(self, tokens):
        states, _ = self.lstm(self.embed(tokens))
        return self.head(states[:, -1])


tokens = torch.randint(0, 16, (640, 10))
labels = (tokens[:, 0] > 7).long()
loader = DataLoader(TensorDataset(tokens, labels), batch_size=32, shuffle=True)
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    total = 0.0
    for tb, lb in loader:
        loss = nn.functional.cross_entropy(model(tb), lb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total / len(loader))
