"""Parts of point clouds: each point of a lamp, a table or a chair gets its part. Batches come from a generator; PointNet in small."""
import torch
import torch.nn.functional as F
from torch import nn

PARTS = 4  # foot, column, plate, shade
POINTS = 96


def stick(n, x, y, low, high):
    z = torch.rand(n) * (high - low) + low
    return torch.stack([x + 0.03 * torch.randn(n), y + 0.03 * torch.randn(n), z], dim=1)


def disc(n, height, radius):
    angle, r = torch.rand(n) * 6.2832, torch.rand(n).sqrt() * radius
    return torch.stack([r * angle.cos(), r * angle.sin(), height + 0.03 * torch.randn(n)], dim=1)


def thing(kind):
    """Points and their parts, in centimetres; the origin is anywhere."""
    size, n = 30 + 60 * torch.rand(1), POINTS // 3
    if kind == 0:  # lamp
        parts = [(disc(n, 0.0, 0.5), 0), (stick(n, 0, 0, 0, 1.5), 1), (disc(n, 1.5, 0.6), 3)]
    elif kind == 1:  # table with one column
        parts = [(stick(n, 0, 0, 0, 0.8), 1), (disc(n, 0.8, 0.9), 2), (disc(n, 0.0, 0.4), 0)]
    else:  # stool: feet and plate
        legs = [stick(n // 2, a, b, 0, 0.5) for a in (-0.3, 0.3) for b in (-0.3, 0.3)]
        parts = [(torch.cat(legs), 0), (disc(POINTS - 4 * (n // 2), 0.5, 0.5), 2)]
    xyz = torch.cat([p for p, _ in parts]) * size + 100 * torch.randn(3)
    part = torch.cat([torch.full((len(p),), k) for p, k in parts])
    mixed = torch.randperm(len(xyz))
    return xyz[mixed], part[mixed]


def normalise(xyz):
    xyz = xyz - xyz.mean(dim=0, keepdim=True)
    return xyz / xyz.norm(dim=1).max()


def turned(xyz):
    a = torch.rand(1) * 6.2832
    c, s, o, i = a.cos(), a.sin(), torch.zeros(1), torch.ones(1)
    turn = torch.stack([torch.cat([c, -s, o]), torch.cat([s, c, o]), torch.cat([o, o, i])])
    return xyz @ turn.T


def batches(clouds, size, train):
    order = torch.randperm(len(clouds)) if train else torch.arange(len(clouds))
    for at in range(0, len(order) - size + 1, size):
        chosen = [clouds[i] for i in order[at:at + size].tolist()]
        xyz = torch.stack([turned(points) if train else points for points, _ in chosen])
        part = torch.stack([parts for _, parts in chosen])
        yield xyz, part


class PartNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.shape = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.decide = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, PARTS))

    def forward(self, xyz):
        local = self.local(xyz)
        whole = self.shape(local).amax(dim=1, keepdim=True)
        return self.decide(torch.cat([local, whole.expand_as(local)], dim=-1))


def score(net, clouds):
    net.eval()
    right = total = 0
    with torch.no_grad():
        for xyz, part in batches(clouds, 16, train=False):
            right += (net(xyz).argmax(dim=-1) == part).sum().item()
            total += part.numel()
    return right / total


def main():
    torch.manual_seed(11)
    clouds = []
    for k in range(352):
        xyz, part = thing(k % 3)
        clouds.append((normalise(xyz), part))
    train, held = clouds[:288], clouds[288:]
    net = PartNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(10):
        net.train()
        for xyz, part in batches(train, 16, train=True):
            opt.zero_grad()
            out = net(xyz)
            loss = F.cross_entropy(out.transpose(1, 2), part)
            loss.backward()
            opt.step()
        if epoch % 3 == 0:
            print(f"epoch {epoch} loss {loss.item():.3f} held out {score(net, held):.3f}")
    print(f"final accuracy: {score(net, held):.4f}")


main()
