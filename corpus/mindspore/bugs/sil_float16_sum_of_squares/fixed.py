"""Mixed precision by to_float: features of 0 to 100, divided by their root mean square."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

ms.set_seed(101)
rng = np.random.RandomState(101)
x = (rng.rand(512, 24) * 100).astype(np.float32)
y = ((x[:, 0] + x[:, 1]) > 100).astype(np.int32)


class RMSNorm(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.gamma = Parameter(ops.ones((width,), ms.float32), name="gamma")

    def construct(self, x):
        x = x.astype(ms.float32)
        square = (x * x).sum(-1, keepdims=True)
        return x * ops.rsqrt(square / x.shape[-1] + 1e-5) * self.gamma.astype(x.dtype)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm = RMSNorm(24)
        self.fc1 = nn.Dense(24, 32).to_float(ms.float16)
        self.fc2 = nn.Dense(32, 2).to_float(ms.float16)

    def construct(self, x):
        h = self.norm(x.astype(ms.float16))
        h = ops.relu(self.fc1(h)) + 1e-3
        h = h / h.sum(-1, keepdims=True)
        return self.fc2(h).astype(ms.float32)


net = Net()
optimizer = nn.Adam(net.trainable_params(), 5e-3)
loss_fn = nn.CrossEntropyLoss()
step = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, optimizer.parameters)
net.set_train()
data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=True).batch(64)
for epoch in range(4):
    for a, b in data.create_tuple_iterator():
        loss, grads = step(a, b)
        optimizer(grads)
    print(epoch, f"{float(loss):.4f}")
