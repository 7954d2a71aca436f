import copy
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(0)
PAD, VOCAB, TAGS, IGNORE = 0, 40, 4, -100


def make(n):
    out = []
    for _ in range(n):
        ids = torch.randint(1, 30, (int(torch.randint(2, 15, ())),))
        out.append((ids, (ids + ids.roll(1)) % TAGS))
    return out


def collate(items):
    ids = pad_sequence([a for a, _ in items], batch_first=True, padding_value=PAD)
    tags = pad_sequence([b for _, b in items], batch_first=True, padding_value=IGNORE)
    return ids, tags, torch.tensor([len(a) for a, _ in items])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 24, padding_idx=PAD)
        self.rnn = nn.GRU(24, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, TAGS)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.emb(ids), lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(h)


train, val = DataLoader(make(500), 25, shuffle=True, collate_fn=collate), DataLoader(make(100), 50, collate_fn=collate)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=1)
crit = nn.CrossEntropyLoss(ignore_index=IGNORE)
best, best_state = float("inf"), None
for epoch in range(7):
    model.train()
    for ids, tags, n in train:
        loss = crit(model(ids, n).flatten(0, 1), tags.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        v = sum(crit(model(i, n).flatten(0, 1), t.flatten()).item() for i, t, n in val) / len(val)
    sched.step(v)
    if v < best:
        best, best_state = v, copy.deepcopy(model.state_dict())
    print(f"epoch {epoch} loss {loss.item():.4f} val loss {v:.4f} lr {opt.param_groups[0]['lr']:.1e}")
model.load_state_dict(best_state)
