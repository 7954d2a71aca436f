"""Soft actor-critic with two critics, an entropy term in the target, targets that follow."""

import copy, torch, torch.nn as nn, torch.nn.functional as F

torch.manual_seed(17)


def mlp(a, b):
    return nn.Sequential(nn.Linear(a, 64), nn.ReLU(), nn.Linear(64, b))


actor, q1, q2 = mlp(3, 2), mlp(4, 1), mlp(4, 1)
t1, t2 = copy.deepcopy(q1), copy.deepcopy(q2)
a_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
q_opt = torch.optim.Adam([*q1.parameters(), *q2.parameters()], lr=1e-3)
alpha, gamma = 0.1, 0.9


def act(s):
    mu, log_std = actor(s).chunk(2, 1)
    std = log_std.clamp(-4, 1).exp()
    u = mu + std * torch.randn_like(std)
    a = torch.tanh(u)
    logp = torch.distributions.Normal(mu, std).log_prob(u) - torch.log(1 - a * a + 1e-6)
    return a, logp


S, A, R, S2, buf = [], [], [], [], None
state = torch.randn(16, 3)
for step in range(300):
    with torch.no_grad():
        a, _ = act(state)
    nxt = 0.8 * state + 0.3 * torch.cat([a, a, -a], 1) + 0.05 * torch.randn(16, 3)
    r = -(nxt[:, :1] - 0.5).square()
    S.append(state)
    A.append(a)
    R.append(r)
    S2.append(nxt)
    state = nxt
    if step < 20:
        continue
    s, ac, rw, s2 = (torch.cat(c[-60:]) for c in (S, A, R, S2))
    i = torch.randint(0, len(s), (64,))
    s, ac, rw, s2 = s[i], ac[i], rw[i], s2[i]
    with torch.no_grad():
        a2, logp2 = act(s2)
        sa2 = torch.cat([s2, a2], 1)
        target = rw + gamma * (torch.min(t1(sa2), t2(sa2)) - alpha * logp2)
    sa = torch.cat([s, ac], 1)
    q_loss = F.mse_loss(q1(sa), target) + F.mse_loss(q2(sa), target)
    q_opt.zero_grad()
    q_loss.backward()
    q_opt.step()
    an, logp = act(s)
    a_loss = (alpha * logp - torch.min(q1(torch.cat([s, an], 1)), q2(torch.cat([s, an], 1)))).mean()
    a_opt.zero_grad()
    a_loss.backward()
    a_opt.step()
    with torch.no_grad():
        for t, q in ((t1, q1), (t2, q2)):
            for p, w in zip(t.parameters(), q.parameters()):
                p.lerp_(w, 0.01)
print("final reward:", float(rw.mean()))
