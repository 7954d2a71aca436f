import numpy as np
import mindspore as ms
from mindspore import Tensor, nn, ops


def reviews():
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 200)
    words = rng.integers(0, 40, (200, 9))
    words[labels == 1, 4] = 41
    return words, labels


class Matrix(nn.Cell):
    """y = x w + b, with the weight the other way round."""

    def __init__(self, inputs, outputs):
        super().__init__()
        bound = inputs**-0.5
        self.w = ms.Parameter(Tensor(np.random.uniform(-bound, bound, (inputs, outputs)).astype(np.float32)))
        self.b = ms.Parameter(Tensor(np.random.uniform(-bound, bound, outputs).astype(np.float32)))

    def construct(self, x):
        return ops.matmul(x, self.w) + self.b


class Block(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm([width], epsilon=1e-5)
        self.qkv = Matrix(width, 3 * width)
        self.proj = nn.Dense(width, width)
        self.up = nn.Dense(width, 2 * width)
        self.act = nn.GELU(approximate=False)
        self.down = nn.Dense(2 * width, width)

    def construct(self, x):
        q, k, v = ops.chunk(self.qkv(self.norm(x)), 3, -1)
        scores = ops.matmul(q, k.swapaxes(1, 2)) / q.shape[-1] ** 0.5
        x = x + self.proj(ops.matmul(ops.softmax(scores, axis=-1), v))
        return x + self.down(self.act(self.up(x)))


class Sentiment(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(48, 16, embedding_table=ms.common.initializer.Normal(1.0))
        self.blocks = nn.CellList([Block(16) for _ in range(2)])
        self.head = nn.Dense(16, 2)

    def construct(self, words):
        x = 0.3 * self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


ms.set_seed(0)
net = Sentiment()
optimizer = nn.Adam(net.trainable_params(), learning_rate=5e-3)
net.set_train()
loss_fn = nn.CrossEntropyLoss()


def forward(x, y):
    return loss_fn(net(x), y)


step = ms.value_and_grad(forward, None, optimizer.parameters)
words, labels = reviews()
for epoch in range(3):
    order = np.random.permutation(len(words))
    for begin in range(0, len(words), 40):
        chosen = order[begin : begin + 40]
        loss, grads = step(Tensor(words[chosen].astype(np.int32)), Tensor(labels[chosen].astype(np.int32)))
        optimizer(grads)
    print(f"epoch {epoch} loss {float(loss.asnumpy()):.4f}")
