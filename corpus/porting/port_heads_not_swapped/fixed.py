import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops


def samples():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(256, 6, 16)).astype(np.float32)
    y = (x.mean(1) @ rng.normal(size=(16, 5))).argmax(1)
    return x, y


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Dense(width, 3 * width)
        self.proj = nn.Dense(width, width)

    def construct(self, x):
        b, t, c = x.shape
        q, k, v = ops.chunk(self.qkv(x), 3, axis=-1)
        q, k, v = [a.reshape(b, t, self.heads, -1).swapaxes(1, 2) for a in (q, k, v)]
        a = ops.softmax(ops.matmul(q, k.swapaxes(-2, -1)) / (c // self.heads) ** 0.5, axis=-1)
        return self.proj(ops.matmul(a, v).swapaxes(1, 2).reshape(b, t, c))


class Model(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((16,), epsilon=1e-5)
        self.attn = Attention(16, 4)
        self.head = nn.Dense(16, 5)

    def construct(self, x):
        x = x + self.attn(self.norm(x))
        return self.head(x.mean(1))


ms.set_seed(1)
model = Model()
model.set_train()
opt = nn.SGD(model.trainable_params(), learning_rate=0.1)
loss_fn = nn.CrossEntropyLoss()


def forward(a, b):
    return loss_fn(model(a), b)


grad_fn = ms.value_and_grad(forward, None, opt.parameters)
x, y = samples()
for epoch in range(2):
    for i in range(0, 256, 32):
        loss, grads = grad_fn(Tensor(x[i : i + 32]), Tensor(y[i : i + 32].astype(np.int32)))
        opt(grads)
    print(epoch, float(loss))
