# pattern source: pytorch/pytorch#42654, pytorch forum "stack expects each tensor to be equal size", huggingface/datasets#2010
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Parity(Dataset):
    def __init__(self, n):
        self.items = [torch.randint(1, 9, (int(torch.randint(3, 12, (1,))),)) for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        ids = self.items[i]
        return ids, (ids == 8).any().long()


def pad_collate(batch):
    ids, labels = zip(*batch)
    return pad_sequence(ids, batch_first=True), torch.stack(labels)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(9, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.fc = nn.Linear(32, 2)

    def forward(self, ids):
        out, _ = self.rnn(self.emb(ids))
        return self.fc(out.amax(1))


train_set, val_set = Parity(600), Parity(200)
train_loader = DataLoader(train_set, batch_size=20, shuffle=True, collate_fn=pad_collate)
val_loader = DataLoader(val_set, batch_size=50, collate_fn=pad_collate)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(4):
    for ids, y in train_loader:
        loss = nn.functional.cross_entropy(model(ids), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        acc = sum((model(ids).argmax(1) == y).sum().item() for ids, y in val_loader) / 200
    print(f"epoch {epoch} loss {loss.item():.4f} val acc {acc:.3f}")
