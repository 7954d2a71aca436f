import torch
from torch import nn

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.mix = nn.Linear(16, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, tokens):
        return self.head(torch.relu(self.mix(self.embed(tokens))).mean(1))


model = Encoder()
step_model = torch.compile(model, backend="aot_eager", dynamic=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(40):
    tokens = torch.randint(0, 50, (16, 4 + step % 15))
    labels = (tokens.float().mean(1) > 24.5).long()
    loss = nn.functional.cross_entropy(step_model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
