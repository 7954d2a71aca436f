import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
PAD = 0


class Sentences(Dataset):
    def __init__(self, n=400):
        lengths = torch.randint(4, 8, (n,))
        lengths[::10] = 40
        self.rows = [torch.randint(1, 25, (int(k),)).cumsum(0) % 24 + 1 for k in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(25, 24, padding_idx=PAD)
        self.rnn = nn.GRU(24, 32, batch_first=True)
        self.out = nn.Linear(32, 25)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


model = LanguageModel()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(4):
    for rows in DataLoader(Sentences(), batch_size=20, collate_fn=collate, shuffle=True):
        logits = model(rows[:, :-1])
        loss = criterion(logits.reshape(-1, 25), rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
