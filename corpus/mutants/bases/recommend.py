"""Two-tower retrieval: users by their history and age group, items by id and genre; other items of the batch are negatives."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)
USERS, ITEMS, GENRES, AGES, HISTORY, DIM = 3000, 400, 12, 6, 8, 32
BATCH, STEPS, TEMPERATURE = 128, 260, 0.1

# -- the catalogue and what people click on ---------------------------------------------------------
genre_of = torch.randint(0, GENRES, (ITEMS,))
taste = torch.randn(AGES, GENRES) * 1.0
user_taste = torch.randn(USERS, GENRES) * 1.5
age = torch.randint(0, AGES, (USERS,))
scores = (user_taste + taste[age])[:, genre_of] + 0.5 * torch.randn(ITEMS)[None]
clicks = torch.multinomial(F.softmax(scores * 1.2, dim=1), HISTORY + 2)
lengths = torch.randint(3, HISTORY + 1, (USERS,))
history = clicks[:, :HISTORY] + 1  # 0 is padding
history[torch.arange(HISTORY)[None] >= lengths[:, None]] = 0
positive, held_out = clicks[:, HISTORY], clicks[:, HISTORY + 1]


class UserTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(ITEMS + 1, DIM, padding_idx=0)
        self.age = nn.Embedding(AGES, 8)
        self.mlp = nn.Sequential(nn.Linear(DIM + 8, 64), nn.ReLU(), nn.Linear(64, DIM))

    def forward(self, history, age):
        mask = (history > 0).float().unsqueeze(-1)
        pooled = (self.item(history) * mask).sum(dim=1) / mask.sum(dim=1)
        return F.normalize(self.mlp(torch.cat([pooled, self.age(age)], dim=1)), dim=1)


class ItemTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.id = nn.Embedding(ITEMS, DIM)
        self.genre = nn.Embedding(GENRES, 16)
        self.mlp = nn.Sequential(nn.Linear(DIM + 16, 64), nn.ReLU(), nn.Linear(64, DIM))

    def forward(self, item, genre):
        return F.normalize(self.mlp(torch.cat([self.id(item), self.genre(genre)], dim=1)), dim=1)


class Retrieval(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = UserTower(), ItemTower()

    def forward(self, history, age, item, genre):
        u, v = self.users(history, age), self.items(item, genre)
        return u @ v.T / TEMPERATURE


popularity = torch.bincount(positive, minlength=ITEMS).float() / USERS


def loss_of(logits, item):
    logits = logits - torch.log(popularity[item] + 1e-4)[None]  # popular items are negatives more often
    same = item[:, None] == item[None]
    same.fill_diagonal_(False)
    logits = logits.masked_fill(same, float("-inf"))
    labels = torch.arange(len(item))
    return F.cross_entropy(logits, labels)


@torch.no_grad()
def recall(model, k=20):
    model.eval()
    v = model.items(torch.arange(ITEMS), genre_of)
    u = model.users(history, age)
    ranked = (u @ v.T).topk(k, dim=1).indices
    model.train()
    return (ranked == held_out[:, None]).any(dim=1).float().mean().item()


model = Retrieval()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(STEPS):
    rows = torch.randint(0, USERS, (BATCH,))
    item = positive[rows]
    logits = model(history[rows], age[rows], item, genre_of[item])
    loss = loss_of(logits, item)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.3f} recall {recall(model):.3f}")
print(f"final recall: {recall(model):.3f}")
