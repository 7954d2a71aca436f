import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(7)
np.random.seed(7)

rng = np.random.RandomState(1)
V, T, C = 20, 12, 32
tokens = (np.cumsum(rng.randint(1, 3, (256, T + 1)), axis=1) % V).astype(np.int32)
mask = Tensor(np.triu(np.full((T, T), -1e9, np.float32), 1))


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((C,)), nn.LayerNorm((C,))
        self.qkv, self.proj = nn.Dense(C, 3 * C), nn.Dense(C, C)
        self.up, self.down, self.gelu = nn.Dense(C, 4 * C), nn.Dense(4 * C, C), nn.GELU()

    def construct(self, x):
        q, k, v = ops.split(self.qkv(self.norm1(x)), C, axis=-1)
        w = ops.softmax(ops.matmul(q, k.swapaxes(1, 2)) / C**0.5 + mask, axis=-1)
        x = x + self.proj(ops.matmul(w, v))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class GPT(nn.Cell):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(V, C)
        self.positions = ms.Parameter(Tensor(0.02 * rng.randn(T, C).astype(np.float32)), name="positions")
        self.blocks = nn.SequentialCell(Block(), Block())
        self.norm = nn.LayerNorm((C,))
        self.head = nn.Dense(C, V)

    def construct(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions)))


net = GPT()
net.set_train()
criterion = nn.CrossEntropyLoss()
rates = [0.003 * min(1.0, (k + 1) / 20) for k in range(60)]
optimizer = nn.AdamWeightDecay(net.trainable_params(), rates)


def forward(x, y):
    return criterion(net(x).reshape(-1, V), y.reshape(-1))


step = ms.value_and_grad(forward, None, optimizer.parameters)
for k in range(60):
    at = slice(k % 8 * 32, k % 8 * 32 + 32)
    loss, grads = step(Tensor(tokens[at, :-1]), Tensor(tokens[at, 1:]))
    optimizer(grads)
    if k % 20 == 0:
        print(f"step {k} loss {float(loss):.4f}")
