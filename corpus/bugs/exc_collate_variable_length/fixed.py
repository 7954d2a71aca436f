import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Sentences(Dataset):
    def __init__(self, n=200):
        self.items = [torch.randint(1, 20, (int(torch.randint(3, 12, (1,))),)) for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i], int(self.items[i][0] > 10)


def pad(batch):
    ids, labels = zip(*batch)
    return pad_sequence(ids, batch_first=True), torch.tensor(labels)


loader = DataLoader(Sentences(), batch_size=20, shuffle=True, collate_fn=pad)
emb, fc = nn.Embedding(20, 16), nn.Linear(16, 2)
opt = torch.optim.Adam([*emb.parameters(), *fc.parameters()], lr=1e-2)
for epoch in range(2):
    for ids, labels in loader:
        loss = nn.functional.cross_entropy(fc(emb(ids).mean(1)), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
