"""A character LSTM with tied lengths, packed sequences, a GRU cell loop, truncated backpropagation and AdamW."""

import torch
from evidence import leave, seed
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 12, num_layers=2, dropout=0.2, batch_first=True)
        self.cell = nn.GRUCell(12, 12)
        self.head = nn.Linear(12, 20)

    def forward(self, tokens, lengths, state=None):
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True)
        out, state = self.lstm(packed, state)
        out, _ = pad_packed_sequence(out, batch_first=True)
        h = out.new_zeros(len(out), 12)
        steps = []
        for t in range(out.shape[1]):
            h = self.cell(out[:, t], h)
            steps.append(self.head(h))
        return torch.stack(steps, 1), state


seed(2)
model = CharLSTM()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss(ignore_index=0)
losses, state = [], None
for _ in range(7):
    tokens = torch.randint(1, 20, (4, 9))
    lengths = torch.tensor([9, 8, 6, 5])
    logits, state = model(tokens[:, :-1], lengths - 1, state)
    state = tuple(part.detach() for part in state)
    loss = criterion(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
leave(losses, {"model": model}, [optimizer], state=state)
