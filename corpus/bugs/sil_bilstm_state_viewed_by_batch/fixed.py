# pattern source: graykode/nlp-tutorial#38, graykode/nlp-tutorial#68, facebookresearch/fairseq#239, facebookresearch/LASER#138
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class BiLSTMClassifier(nn.Module):
    def __init__(self, vocab, emb=16, hidden=24, classes=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, tokens):
        _, (h_n, _) = self.lstm(self.embedding(tokens))
        h = torch.cat([h_n[0], h_n[1]], dim=1)
        return self.fc(h)


def make_data(n, t=8, vocab=20):
    tokens = torch.randint(4, vocab, (n, t))
    labels = torch.randint(0, 4, (n,))
    where = torch.randint(0, t, (n,))
    tokens[torch.arange(n), where] = labels
    return tokens, labels


x_train, y_train = make_data(1200)
x_val, y_val = make_data(300)
net = BiLSTMClassifier(20)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)


def fit(epochs):
    for epoch in range(epochs):
        total = 0.0
        for idx in torch.randperm(1200).split(60):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x_train[idx]), y_train[idx])
            loss.backward()
            optimizer.step()
            total += loss.item() / 20
        with torch.no_grad():
            acc = (net(x_val).argmax(1) == y_val).float().mean().item()
        print(f"epoch {epoch} loss {total:.4f} val acc {acc:.3f}")


fit(8)
