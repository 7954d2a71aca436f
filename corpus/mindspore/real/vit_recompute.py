"""A small vision transformer with recomputed blocks, an averaged copy of the weights and early stopping."""

from fingerprint import report
import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer

rng = np.random.RandomState(4)
KINDS = rng.randn(4, 3, 16, 16)


class Attention(nn.Cell):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.scale = heads, Tensor((dim // heads) ** -0.5, ms.float32)
        self.qkv = nn.Dense(dim, 3 * dim)
        self.out = nn.Dense(dim, dim)

    def construct(self, x):
        b, n, c = x.shape
        q, k, v = ops.unstack(self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).transpose(2, 0, 3, 1, 4))
        attention = ops.softmax(ops.bmm(q, k.swapaxes(-2, -1)) * self.scale, axis=-1)
        return self.out(ops.bmm(attention, v).transpose(0, 2, 1, 3).reshape(b, n, c))


class Block(nn.Cell):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((dim,)), nn.LayerNorm((dim,))
        self.attn = Attention(dim, 2)
        self.mlp = nn.SequentialCell(nn.Dense(dim, 2 * dim), nn.GELU(), nn.Dense(2 * dim, dim))

    def construct(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Cell):
    def __init__(self, dim=24, depth=2):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 4, 4, pad_mode="valid", has_bias=True)
        self.cls = Parameter(initializer(Normal(0.02), (1, 1, dim)), name="cls")
        self.pos = Parameter(initializer(Normal(0.02), (1, 17, dim)), name="pos")
        self.blocks = nn.SequentialCell([Block(dim) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm((dim,)), nn.Dense(dim, 4)

    def construct(self, x):
        x = self.patches(x).flatten(start_dim=2).swapaxes(1, 2)
        x = ops.cat([ops.tile(self.cls, (x.shape[0], 1, 1)), x], axis=1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


net = ViT()
for block in net.blocks:
    block.mlp.recompute()
average = {p.name: p.asnumpy().copy() for p in net.trainable_params()}
opt = nn.AdamWeightDecay(net.trainable_params(), nn.WarmUpLR(2e-3, 10), weight_decay=0.05)
loss_fn = nn.CrossEntropyLoss()


def forward(x, y):
    logits = net(x)
    return loss_fn(logits, y), logits


grad_fn = ms.value_and_grad(forward, None, opt.parameters, has_aux=True)
best, patience = np.inf, 0
for epoch in range(3):
    net.set_train()
    total = 0.0
    for _ in range(8):
        y = np.random.randint(0, 4, 24)
        x = (KINDS[y] + 0.7 * np.random.randn(24, 3, 16, 16)).astype(np.float32)
        (loss, logits), grads = grad_fn(Tensor(x), Tensor(y, ms.int32))
        grads = ops.clip_by_global_norm(grads, 1.0)
        opt(grads)
        total += float(loss)
        for p in net.trainable_params():
            average[p.name] = 0.9 * average[p.name] + 0.1 * p.asnumpy()
    print(f"epoch {epoch} loss {total / 8:.6f}")
    patience = 0 if total < best - 0.01 else patience + 1
    best = min(best, total)
    if patience == 2:
        break
for p in net.trainable_params():
    p.set_data(Tensor(average[p.name].astype(np.float32)))
net.set_train(False)
print(net(Tensor(KINDS.astype(np.float32))).argmax(1))
report(net, opt)
