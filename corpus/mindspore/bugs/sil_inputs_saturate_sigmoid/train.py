import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(11)
rng = np.random.default_rng(11)
x = rng.uniform(0, 255, size=(400, 16)).astype(np.float32)
y = (x[:, 0] > x[:, 1]).astype(np.int32)
net = nn.SequentialCell(nn.Dense(16, 32, weight_init="normal"), nn.Sigmoid(), nn.Dense(32, 2))
for p in net.trainable_params():
    if p.ndim == 2:
        p.set_data(Tensor(rng.normal(size=p.shape).astype(np.float32)))
loss_fn = nn.CrossEntropyLoss()
opt = nn.SGD(net.trainable_params(), 0.1)
train = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
for k in range(80):
    rows = rng.integers(0, 400, 32)
    loss, grads = train(Tensor(x[rows]), Tensor(y[rows]))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
