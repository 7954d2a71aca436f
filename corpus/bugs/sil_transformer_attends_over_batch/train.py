# pattern source: IBM/TabFormer#14, Exorust/TorchLeet#5, DaoyuanLi2816/Molecule-Generator#22, aipixel/AEMatter#3
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self, n_tokens=4, seq_len=6, d_model=32):
        super().__init__()
        self.tok = nn.Embedding(n_tokens, d_model)
        self.pos = nn.Parameter(0.5 * torch.randn(1, seq_len, d_model))
        layer = nn.TransformerEncoderLayer(d_model, nhead=4, dim_feedforward=64, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.fc = nn.Linear(d_model, 4)

    def forward(self, ids):  # ids: (batch, time)
        h = self.encoder(self.tok(ids) + self.pos)
        return self.fc(h[:, 0])


ids = torch.randint(0, 4, (1200, 6))
labels = (ids[:, 2] + ids[:, 4]) % 4
train = DataLoader(TensorDataset(ids[:1000], labels[:1000]), batch_size=50, shuffle=True)
model = Classifier()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
crit = nn.CrossEntropyLoss()
for epoch in range(14):
    model.train()
    total = 0.0
    for xb, yb in train:
        opt.zero_grad()
        loss = crit(model(xb), yb)
        loss.backward()
        opt.step()
        total += loss.item() / len(train)
    model.eval()
    with torch.no_grad():
        acc = (model(ids[1000:]).argmax(1) == labels[1000:]).float().mean().item()
    if epoch % 2 == 1:
        print(f"epoch {epoch} loss {total:.4f} val acc {acc:.3f}")
