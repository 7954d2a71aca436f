"""An LSTM language model with truncated backpropagation, clipping and updates by hand."""

import torch
from fingerprint import report
from torch import nn

torch.manual_seed(1)
VOCABULARY, BATCH, LENGTH = 40, 8, 16
text = torch.randint(0, VOCABULARY, (4000,))
text[1::2] = (text[::2] * 7 + 3) % VOCABULARY  # every second word follows from the one before


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.encoder = nn.Embedding(VOCABULARY, 32)
        self.rnn = nn.LSTM(32, 48, 2, dropout=0.1)
        self.decoder = nn.Linear(48, VOCABULARY)

    def forward(self, words, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(words)), hidden)
        return nn.functional.log_softmax(self.decoder(self.drop(out)).view(-1, VOCABULARY), dim=1), hidden

    def init_hidden(self, size):
        weight = next(self.parameters())
        return weight.new_zeros(2, size, 48), weight.new_zeros(2, size, 48)


def batchify(data, size):
    n = data.size(0) // size
    return data.narrow(0, 0, n * size).view(size, -1).t().contiguous()


train, valid = batchify(text[:3200], BATCH), batchify(text[3200:], BATCH)
model, criterion, lr = RNNModel(), nn.NLLLoss(), 5.0
best = None
for epoch in range(4):
    model.train()
    hidden = model.init_hidden(BATCH)
    for i in range(0, train.size(0) - 1, LENGTH):
        length = min(LENGTH, len(train) - 1 - i)
        data, target = train[i : i + length], train[i + 1 : i + 1 + length].view(-1)
        model.zero_grad()
        hidden = tuple(h.detach() for h in hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
    model.eval()
    with torch.no_grad():
        output, _ = model(valid[:-1], model.init_hidden(BATCH))
        val = criterion(output, valid[1:].view(-1)).item()
    print(epoch, f"{loss.item():.6f} {val:.6f}")
    if best is None or val < best:
        best = val
    else:
        lr /= 4.0
report(model)
