"""Find the answer: a question names a key, the text holds keys with values of one to three words; start and end are to be found."""
import random

import torch
from torch import nn

PAD, SEP, KEYS, WORDS = 0, 1, 24, 40
KEY0, WORD0 = 2, 2 + KEYS
VOCAB = WORD0 + WORDS


def example(rand):
    """Token ids of 'question SEP text', and the first and last position of the answer in it."""
    keys = rand.sample(range(KEYS), rand.randint(3, 5))
    asked = rand.choice(keys)
    tokens = [KEY0 + asked, SEP]
    for key in keys:
        tokens.append(KEY0 + key)
        value = [WORD0 + rand.randrange(WORDS) for _ in range(rand.randint(1, 3))]
        if key == asked:
            first, last = len(tokens), len(tokens) + len(value) - 1
        tokens += value
    return tokens, first, last


def batcher(data, size, seed):
    """A function that gives the next batch, again and again through the data."""
    rand = random.Random(seed)
    order, at = list(range(len(data))), [0]
    rand.shuffle(order)

    def following():
        if at[0] + size > len(order):
            rand.shuffle(order)
            at[0] = 0
        rows = [data[i] for i in order[at[0]:at[0] + size]]
        at[0] += size
        longest = max(len(tokens) for tokens, _, _ in rows)
        tokens = torch.full((size, longest), PAD)
        for k, (ids, _, _) in enumerate(rows):
            tokens[k, :len(ids)] = torch.tensor(ids)
        first = torch.tensor([row[1] for row in rows])
        last = torch.tensor([row[2] for row in rows])
        return tokens, first, last

    return following


class Reader(nn.Module):
    def __init__(self, width=48, heads=4, layers=1, longest=32):
        super().__init__()
        self.words = nn.Embedding(VOCAB, width, padding_idx=PAD)
        self.places = nn.Parameter(0.02 * torch.randn(longest, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.gru = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.ends = nn.Linear(width, 2)

    def forward(self, tokens):
        padding = tokens == PAD
        x = self.words(tokens) + self.places[:tokens.size(1)]
        x, _ = self.gru(x)
        x = self.encoder(x, src_key_padding_mask=padding)
        scores = self.ends(x).masked_fill(padding.unsqueeze(-1), -1e4)
        return scores[..., 0], scores[..., 1]


def exact(model, data):
    model.eval()
    following, found, asked = batcher(data, 100, seed=0), 0, 0
    with torch.no_grad():
        for _ in range(len(data) // 100):
            tokens, first, last = following()
            start, end = model(tokens)
            found += ((start.argmax(1) == first) & (end.argmax(1) == last)).sum().item()
            asked += len(tokens)
    model.train()
    return found / asked


def warm(step):
    return min(1.0, (step + 1) / 30)


rand = random.Random(2)
torch.manual_seed(2)
train_data = [example(rand) for _ in range(3000)]
test_data = [example(rand) for _ in range(400)]
model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm)
criterion = nn.CrossEntropyLoss()
next_batch = batcher(train_data, 40, seed=1)

for step in range(400):
    tokens, first, last = next_batch()
    start, end = model(tokens)
    loss = (criterion(start, first) + criterion(end, last)) / 2
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if step % 75 == 0:
        print(f"step {step} loss {loss.item():.3f} exact {exact(model, test_data):.3f}")

print(f"final exact: {exact(model, test_data):.4f}")
