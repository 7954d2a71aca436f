import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(640, 8)).astype(np.float32)
y = (x[:, 0] + x[:, 1] > 0).astype(np.int32) + 2 * (x[:, 2] > 0).astype(np.int32)
net = nn.SequentialCell(nn.Dense(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(p=0.3), nn.Dense(32, 4))
opt = nn.SGD(net.trainable_params(), 0.05)
loss_fn = nn.CrossEntropyLoss()


def forward(a, b):
    return loss_fn(net(a), b)


def evaluate():
    net.set_train(False)
    right = (net(Tensor(x[:64])).argmax(-1) == Tensor(y[:64])).astype(ms.float32).mean()
    print("accuracy", right)


step = ms.value_and_grad(forward, None, opt.parameters)
net.set_train()
for epoch in range(4):
    for k in range(20):
        at = slice(k * 32, k * 32 + 32)
        loss, grads = step(Tensor(x[at]), Tensor(y[at]))
        opt(grads)
    evaluate()
