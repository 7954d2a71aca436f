import numpy as np
import torch
from torch import nn


def reviews():
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 200)
    words = rng.integers(0, 40, (200, 9))
    words[labels == 1, 4] = 41
    return words, labels


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(48, 16)
        self.lstm = nn.LSTM(16, 12, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(24, 2)

    def forward(self, words):
        states, _ = self.lstm(self.embed(words))
        return self.head(self.drop(states.max(1).values))


torch.manual_seed(0)
model = Sentiment()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
model.train()
loss_fn = nn.CrossEntropyLoss()
words, labels = reviews()
for epoch in range(3):
    order = np.random.permutation(len(words))
    for begin in range(0, len(words), 40):
        chosen = order[begin : begin + 40]
        optimizer.zero_grad()
        loss = loss_fn(model(torch.from_numpy(words[chosen])), torch.from_numpy(labels[chosen]))
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
