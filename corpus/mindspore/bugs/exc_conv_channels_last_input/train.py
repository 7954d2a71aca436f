import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
images = rng.random((64, 16, 16, 3)).astype(np.float32)
labels = rng.integers(0, 2, 64).astype(np.int32)
net = nn.SequentialCell(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Dense(8 * 256, 2))
opt = nn.SGD(net.trainable_params(), 0.05)
loss_fn = nn.CrossEntropyLoss()
step = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
for k in range(4):
    at = slice(k * 16, k * 16 + 16)
    batch = Tensor(images[at])
    loss, grads = step(batch, Tensor(labels[at]))
    opt(grads)
    print(k, loss)
