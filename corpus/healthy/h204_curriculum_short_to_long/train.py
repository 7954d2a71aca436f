import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Sums(Dataset):
    """digit sequences, shortest first; the label is the sum modulo 3"""

    def __init__(self, n=1200):
        lengths = torch.randint(1, 6, (n,)).sort().values
        self.seqs = [torch.randint(0, 3, (int(k),)) for k in lengths]

    def __len__(self):
        return len(self.seqs)

    def __getitem__(self, i):
        return self.seqs[i], int(self.seqs[i].sum()) % 3


def collate(items):
    seqs, labels = zip(*items)
    return pad_sequence(seqs, batch_first=True, padding_value=3), torch.tensor([len(s) for s in seqs]), torch.tensor(labels)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(4, 8, padding_idx=3)
        self.rnn = nn.GRU(8, 48, batch_first=True)
        self.out = nn.Linear(48, 3)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.emb(ids), lengths, batch_first=True, enforce_sorted=False)
        return self.out(self.rnn(packed)[1][-1])


data = Sums()
model = Counter()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(8):
    loader = DataLoader(data, batch_size=40, shuffle=epoch >= 2, collate_fn=collate)
    hits, total = 0, 0.0
    for ids, lengths, labels in loader:
        logits = model(ids, lengths)
        loss = nn.functional.cross_entropy(logits, labels)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        hits += (logits.argmax(1) == labels).sum().item()
        total += loss.item() / len(loader)
    print(f"epoch {epoch} loss {total:.4f} acc {hits / len(data):.3f}")
