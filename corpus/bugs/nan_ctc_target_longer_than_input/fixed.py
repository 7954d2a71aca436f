import torch
import torch.nn as nn

torch.manual_seed(0)
V = 10


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(12, 32, batch_first=True)
        self.fc = nn.Linear(32, V)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.fc(h).log_softmax(-1).transpose(0, 1)


model = Recogniser()
ctc = nn.CTCLoss(blank=0, zero_infinity=True)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(50):
    frames = torch.randint(8, 21, (8,))
    lengths = torch.randint(2, 7, (8,))
    if step == 17:
        frames[3], lengths[3] = 5, 6  # speech that was cut off
    targets = torch.randint(1, V, (8, 6))
    x = torch.randn(8, 20, 12)
    loss = ctc(model(x), targets, frames, lengths)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 5 == 4:
        print(f"step {step} loss {loss.item():.4f}")
