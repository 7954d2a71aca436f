import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds

ms.set_seed(4)
rng = np.random.default_rng(4)
x = rng.normal(size=(200, 6)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.float32)
data = ds.NumpySlicesDataset((x, y), ["x", "y"]).batch(20)
net = nn.SequentialCell(nn.Dense(6, 16), nn.Tanh(), nn.Dense(16, 2))
loss_fn = nn.CrossEntropyLoss()
opt = nn.Adam(net.trainable_params(), 0.01)


def forward(x, y):
    return loss_fn(net(x), y)


grad_fn = ms.value_and_grad(forward, None, opt.parameters)
for epoch in range(2):
    for a, b in data.create_tuple_iterator():
        loss, grads = grad_fn(a, b)
        opt(grads)
    print(epoch, loss)
