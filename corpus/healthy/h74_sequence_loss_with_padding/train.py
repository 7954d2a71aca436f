import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 16, batch_first=True, bidirectional=True)
        self.score = nn.Linear(32, 1)
        self.out = nn.Linear(64, 3)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        weight = self.score(h).squeeze(-1).masked_fill(tokens == 0, float("-inf")).softmax(-1)
        context = (weight.unsqueeze(-1) * h).sum(1, keepdim=True).expand_as(h)
        return self.out(torch.cat([h, context], -1))


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(120):
    rows = [torch.randint(1, 20, (int(n),)) for n in torch.randint(3, 9, (24,))]
    tokens = pad_sequence(rows, batch_first=True)
    tags = pad_sequence([r % 3 for r in rows], batch_first=True, padding_value=-100)
    logits = model(tokens, torch.tensor([len(r) for r in rows]))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
