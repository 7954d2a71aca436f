import torch
from torch import nn

torch.manual_seed(0)
VOCAB = 40


def initial_table(vocab, d):
    """no vectors found for this vocabulary: start from noise"""
    return torch.randn(vocab, d) * 0.01


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(initial_table(VOCAB, 16))
        self.gru = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, tokens):
        return self.head(self.gru(self.embed(tokens))[0].mean(1))


tokens = torch.randint(0, VOCAB, (600, 8))
labels = ((tokens % 3 == 0).sum(1) > 2).long()
model = Classifier()
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
for epoch in range(6):
    for idx in torch.randperm(600).split(50):
        loss = nn.functional.cross_entropy(model(tokens[idx]), labels[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
