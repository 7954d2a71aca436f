import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops


def samples():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(256, 6, 16)).astype(np.float32)
    y = (x.mean(1) @ rng.normal(size=(16, 5))).argmax(1)
    return x, y


class Mix(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.weight = Parameter(Tensor(np.random.uniform(-0.2, 0.2, (width, width)).astype(np.float32)), name="weight")

    def construct(self, x):
        return ops.matmul(x, self.weight.T)


class Model(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enter = nn.Dense(16, 24)
        self.mix = Mix(24)
        self.head = nn.Dense(24, 5)

    def construct(self, x):
        h = ops.tanh(self.enter(x.mean(1)))
        return self.head(ops.relu(self.mix(h)))


ms.set_seed(1)
np.random.seed(1)
model = Model()
model.set_train()
opt = nn.Adam(model.trainable_params(), learning_rate=0.003)
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
