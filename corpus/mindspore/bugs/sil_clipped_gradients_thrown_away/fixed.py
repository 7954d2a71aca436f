"""An RNN by hand over long sequences, with clipped gradients."""
import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

ms.set_seed(8)
rng = np.random.RandomState(8)
LENGTH, WIDTH = 14, 24


class Recurrent(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enter = nn.Dense(2, WIDTH)
        self.again = Parameter(Tensor(rng.randn(WIDTH, WIDTH) * 0.35, ms.float32), name="again")
        self.leave = nn.Dense(WIDTH, 1)

    def construct(self, x):
        h = ops.zeros((x.shape[0], WIDTH), ms.float32)
        for t in range(LENGTH):
            h = ops.tanh(self.enter(x[:, t]) + ops.matmul(h, self.again))
        return self.leave(h)


net = Recurrent()
optimizer = nn.SGD(net.trainable_params(), 1.0)
loss_fn = nn.MSELoss()
grad_fn = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
net.set_train()
for step in range(40):
    values, marks = rng.rand(32, LENGTH), np.zeros((32, LENGTH))
    marks[:, -3] = marks[:, -8] = 1
    x = np.stack([values, marks], -1).astype(np.float32)
    y = (values * marks).sum(1, keepdims=True).astype(np.float32)
    loss, grads = grad_fn(Tensor(x), Tensor(y))
    grads = ops.clip_by_global_norm(grads, 0.1)
    optimizer(grads)
    if step % 10 == 0:
        print(step, f"{float(loss):.4f}")
