import torch
from torch import nn

torch.manual_seed(0)
VOCAB, PAD, LENGTH = 30, 0, 12


def batch(size=32):
    tokens = torch.randint(1, VOCAB, (size, LENGTH))
    lengths = torch.randint(3, LENGTH - 1, (size,))
    tokens[torch.arange(LENGTH)[None] >= lengths[:, None]] = PAD
    labels = (tokens == 7).any(1) | (tokens == 9).any(1)
    return tokens, labels.long()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 32, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 2)

    def forward(self, tokens):
        mask = tokens != PAD
        hidden = self.encoder(self.embed(tokens), src_key_padding_mask=mask)
        return self.head(hidden.mean(1))


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(150):
    tokens, labels = batch()
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(step, loss.item())
