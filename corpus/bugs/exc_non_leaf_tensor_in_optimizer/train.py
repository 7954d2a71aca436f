# pattern source: pytorch/pytorch#140469, vinsis/ternary-quantization#4, mazzzystar/randomCNN-voice-transfer#16
import torch

torch.manual_seed(7)
n_users, n_items, rank = 60, 40, 6

true_u, true_i = torch.randn(n_users, 3), torch.randn(n_items, 3)
ratings = true_u @ true_i.T + 0.1 * torch.randn(n_users, n_items)
seen = torch.rand(n_users, n_items) < 0.5

user_factors = torch.empty(n_users, rank).normal_(0, 0.1).requires_grad_()
item_factors = torch.randn(n_items, rank, requires_grad=True) * 0.1
user_bias = torch.zeros(n_users, requires_grad=True)
item_bias = torch.zeros(n_items, requires_grad=True)


def predict(u, i):
    return (user_factors[u] * item_factors[i]).sum(1) + user_bias[u] + item_bias[i]


def make_optimizer(factors, biases):
    return torch.optim.Adam(
        [
            {"params": factors, "lr": 2e-2, "weight_decay": 1e-4},
            {"params": biases, "lr": 1e-2},
        ]
    )


optimizer = make_optimizer([user_factors, item_factors], [user_bias, item_bias])
users, items = seen.nonzero(as_tuple=True)
for epoch in range(6):
    total = 0.0
    for idx in torch.randperm(len(users)).split(100):
        u, i = users[idx], items[idx]
        loss = (predict(u, i) - ratings[u, i]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(idx)
    print(f"epoch {epoch} mse {total / len(users):.4f}")
