import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(11)
rng = np.random.default_rng(11)
x_all = rng.normal(size=(400, 6)).astype(np.float32)
y_all = (x_all[:, :1] * 2 - x_all[:, 1:2] + 0.1 * rng.normal(size=(400, 1))).astype(np.float32)

net = nn.SequentialCell(nn.Dense(6, 20), nn.Tanh(), nn.Dense(20, 1))
loss_fn = nn.MSELoss()
optimizer = nn.SGD(net.trainable_params(), learning_rate=0.05)


def forward_fn(x, y):
    return loss_fn(net(x), y)


grad_fn = ms.value_and_grad(forward_fn, None, net.trainable_params())


def train_step(x, y):
    loss, grads = grad_fn(x, y)
    optimizer(grads)
    return loss


net.set_train(True)
for epoch in range(5):
    total = 0.0
    for i in range(0, 400, 40):
        total += float(train_step(Tensor(x_all[i : i + 40]), Tensor(y_all[i : i + 40])).asnumpy())
    print(f"epoch {epoch}: {total / 10:.4f}")
