import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class TextModel(nn.Module):
    def __init__(self, vocab=50, dim=16, classes=3):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim)
        self.fc = nn.Linear(dim, classes)

    def forward(self, ids):
        return F.softmax(self.fc(self.emb(ids)), dim=1)


ids = torch.randint(0, 50, (900, 12))
y = ids.sum(1) % 3
model = TextModel()
criterion = nn.NLLLoss()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(5):
    for idx in torch.randperm(900).split(45):
        loss = criterion(model(ids[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
