"""pytorch-metric-learning: triplet miner, proxy losses with their own optimizer."""

# needs: pytorch-metric-learning
import torch
from fingerprint import report
from pytorch_metric_learning import losses, miners, samplers
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centers = torch.randn(8, 16)
y = torch.arange(8).repeat(60)
x = centers[y] + 0.7 * torch.randn(480, 16)
sampler = samplers.MPerClassSampler(y, m=4, length_before_new_iter=480)
loader = DataLoader(TensorDataset(x, y), batch_size=32, sampler=sampler)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
miner = miners.MultiSimilarityMiner()
triplet = losses.TripletMarginLoss(margin=0.2)
proxy = losses.ProxyAnchorLoss(num_classes=8, embedding_size=8)
opt = torch.optim.Adam(net.parameters(), 1e-3)
popt = torch.optim.SGD(proxy.parameters(), 0.5)
for epoch in range(6):
    for a, b in loader:
        opt.zero_grad()
        popt.zero_grad()
        e = net(a)
        loss = triplet(e, b, miner(e, b)) + 0.1 * proxy(e, b)
        loss.backward()
        opt.step()
        popt.step()
    print(epoch, f"{loss.item():.6f}")
report(net, proxy, opt, popt)
