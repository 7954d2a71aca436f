# pattern source: asyml/texar-pytorch#310, joeynmt/joeynmt#184, wkentaro/pytorch-fcn#56, tk-rusch/coRNN#1
import torch
import torch.nn as nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, stride=2, padding=1)
        self.bn = nn.BatchNorm2d(c_out)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(torch.relu(self.bn(self.conv(x))))


class SmallNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.features = nn.Sequential(Block(1, 16), Block(16, 32))
        self.classifier = nn.Linear(32 * 9, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def validate(model, x, y):
    model.eval()
    with torch.no_grad():
        out = model(x)
    return nn.functional.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


proto = 0.5 * torch.randn(6, 1, 12, 12)
y = torch.randint(0, 6, (400,))
x = 4.0 + 3.0 * (proto[y] + 1.6 * torch.randn(400, 1, 12, 12))
xt, yt, xv, yv = x[:200], y[:200].clone(), x[200:], y[200:]
yt[:50] = torch.randint(0, 6, (50,))  # a quarter of the crowd-sourced labels is noise
model = SmallNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(15):
    model.train()
    tot = 0.0
    for idx in torch.randperm(200).split(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(xt[idx]), yt[idx])
        loss.backward()
        optimizer.step()
        tot += loss.item()
    batches = model.features[0].bn.num_batches_tracked.item()
    val_loss, val_acc = validate(model, xv, yv)
    print(f"epoch {epoch} loss {tot / 10:.4f} val loss {val_loss:.4f} val acc {val_acc:.3f} bn batches {batches}")
