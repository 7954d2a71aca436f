import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds

ms.set_seed(14)
rng = np.random.default_rng(14)
x = rng.normal(size=(640, 8)).astype(np.float32)
y = (x[:, :1] * 2 - x[:, 1:2]).astype(np.float32)
data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False).batch(16)
net = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 1))
loss_fn = nn.MSELoss()
opt = nn.Adam(net.trainable_params(), 0.005)
train = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
batches = data.create_tuple_iterator()
a, b = next(iter(batches))
for k in range(60):
    loss, grads = train(a, b)
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
