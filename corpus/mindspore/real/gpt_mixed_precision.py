"""A tiny GPT in float16 with a static loss scale, amp's white list, warm-up, tied weights and gradient accumulation."""

from fingerprint import report
import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, amp, nn, ops
from mindspore.common.initializer import Normal, initializer

VOCABULARY, LENGTH, WIDTH, HEADS = 24, 8, 16, 2


class Attention(nn.Cell):
    def __init__(self):
        super().__init__()
        self.heads, self.width = HEADS, WIDTH
        self.qkv, self.proj = nn.Dense(WIDTH, 3 * WIDTH), nn.Dense(WIDTH, WIDTH)
        self.mask = Tensor(np.triu(np.ones((LENGTH, LENGTH)), 1).astype(bool))

    def construct(self, x):
        batch, length, _ = x.shape
        q, k, v = ops.chunk(self.qkv(x), 3, axis=-1)
        q = q.reshape(batch, length, self.heads, -1).transpose(0, 2, 1, 3)
        k = k.reshape(batch, length, self.heads, -1).transpose(0, 2, 1, 3)
        v = v.reshape(batch, length, self.heads, -1).transpose(0, 2, 1, 3)
        scores = ops.matmul(q, k.swapaxes(-2, -1)) / (self.width // self.heads) ** 0.5
        scores = ops.masked_fill(scores, self.mask, -65000.0)
        mixed = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.proj(mixed.transpose(0, 2, 1, 3).reshape(batch, length, self.width))


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm([WIDTH]), nn.LayerNorm([WIDTH])
        self.attn = Attention()
        self.mlp = nn.SequentialCell([nn.Dense(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dense(4 * WIDTH, WIDTH)])

    def construct(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Cell):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH, embedding_table=Normal(0.02))
        self.wpe = Parameter(initializer(Normal(0.02), [LENGTH, WIDTH]), name="wpe")
        self.blocks = nn.CellList([Block() for _ in range(2)])
        self.ln_f = nn.LayerNorm([WIDTH])

    def construct(self, tokens):
        x = self.wte(tokens) + self.wpe
        for block in self.blocks:
            x = block(x)
        x = self.ln_f(x)
        return ops.matmul(x, self.wte.embedding_table.T)


net = amp.auto_mixed_precision(GPT(), "O1")
net.set_train()
loss_fn = nn.CrossEntropyLoss()
warm = nn.WarmUpLR(learning_rate=3e-3, warmup_steps=10)
optimizer = nn.AdamWeightDecay(net.trainable_params(), warm, weight_decay=0.01)
scaler = amp.StaticLossScaler(scale_value=2**10)


def forward_fn(tokens, targets):
    logits = net(tokens).astype(ms.float32)
    return scaler.scale(loss_fn(logits.reshape(-1, VOCABULARY), targets.reshape(-1)))


grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters)
stream = np.cumsum(np.random.randint(1, 4, 4000)) % VOCABULARY
gathered, losses = None, []
for micro in range(16):
    starts = np.random.randint(0, len(stream) - LENGTH - 1, 8)
    batch = np.stack([stream[s : s + LENGTH + 1] for s in starts]).astype(np.int32)
    loss, grads = grad_fn(Tensor(batch[:, :-1]), Tensor(batch[:, 1:]))
    loss, grads = scaler.unscale(loss), scaler.unscale(grads)
    if not amp.all_finite(grads):
        continue
    gathered = grads if gathered is None else tuple(a + b for a, b in zip(gathered, grads))
    losses.append(float(loss.asnumpy()))
    if micro % 2 == 1:
        optimizer(tuple(g / 2 for g in gathered))
        gathered = None
    if micro % 8 == 7:
        print(f"micro {micro} loss {np.mean(losses[-8:]):.6f}")
report(net, optimizer)
