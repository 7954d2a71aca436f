"""Weight averaging by torch.optim.swa_utils, an EMA by hand, and one batch whose loss is not finite."""

import copy

import torch
from fingerprint import report
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(512, 10)
y = (x[:, :3].sum(1) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
swa = AveragedModel(model)
by_hand = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
step = skipped = 0
for epoch in range(8):
    for features, labels in loader:
        if step == 30:
            features = features * float("inf")
        loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()
            ema.update_parameters(model)
            with torch.no_grad():
                for mine, theirs in zip(by_hand.parameters(), model.parameters()):
                    mine.lerp_(theirs, 0.05)
        else:
            skipped += 1
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.reset_running_stats()
        step += 1
    if epoch >= 4:
        swa.update_parameters(model)
        schedule.step()
update_bn(loader, swa)
print(step, skipped, f"{loss.item():.6f}", int(ema.n_averaged), int(swa.n_averaged))
report(model, ema, swa, by_hand, optimizer)
