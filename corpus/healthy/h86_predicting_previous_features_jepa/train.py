import copy
import torch
import torch.nn as nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 16))
predictor = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
target = copy.deepcopy(encoder).requires_grad_(False)
opt = torch.optim.AdamW([*encoder.parameters(), *predictor.parameters()], lr=2e-3, weight_decay=0.05)
best, kept = float("inf"), None
for step in range(120):
    base = torch.randn(64, 12)
    view = base * (torch.rand(64, 12) > 0.3)
    with torch.no_grad():
        goal = nn.functional.layer_norm(target(base), (16,))
    loss = nn.functional.smooth_l1_loss(predictor(encoder(view)), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for t, e in zip(target.parameters(), encoder.parameters()):
            t.lerp_(e, 0.01)
    if loss.item() < best:
        best = loss.item()
        kept = {k: v.clone() for k, v in encoder.state_dict().items()}
    if step % 30 == 29:
        print(f"step {step} loss {loss.item():.4f}")
encoder.load_state_dict(kept)
