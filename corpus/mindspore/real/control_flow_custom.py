"""A custom cell: control flow in construct, a parameter list, a hand-written bprop, hooks of the user's, early stopping, no optimizer cell."""

from fingerprint import report
import numpy as np
import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops


class Clamp(nn.Cell):
    """Passes gradients straight through."""

    def construct(self, x):
        return ops.clamp(x, -2.0, 2.0)

    def bprop(self, x, out, dout):
        return (dout,)


class Adaptive(nn.Cell):
    def __init__(self, width=8, most=4):
        super().__init__()
        self.w = Parameter(Tensor(np.random.randn(width, width).astype(np.float32) / width**0.5), name="w")
        self.enter, self.leave, self.halt = nn.Dense(3, width), nn.Dense(width, 1), nn.Dense(width, 1)
        self.clamp, self.most = Clamp(), most

    def construct(self, x, deep=False):
        h, done = self.enter(x), 0
        while done < self.most:
            h = self.clamp(ops.tanh(ops.matmul(h, self.w)) + h)
            done += 1
            if not deep and float(ops.sigmoid(self.halt(h)).mean()) > 0.55:
                break
        return self.leave(h) * ops.sigmoid(self.halt(h)), done


net = Adaptive()
net.set_train()
seen = []
handle = net.leave.register_forward_hook(lambda cell, inputs, output: seen.append(float(output.mean())))
weights = ParameterTuple(net.trainable_params())


def forward(x, y):
    out, done = net(x)
    return ops.mse_loss(out, y), Tensor(done)


step = ms.value_and_grad(forward, None, weights, has_aux=True)
x = np.random.randn(96, 3).astype(np.float32)
y = (x[:, :1] * x[:, 1:2]).astype(np.float32)
best, waited = np.inf, 0
for k in range(60):
    at = k % 3 * 32
    (loss, done), grads = step(Tensor(x[at : at + 32]), Tensor(y[at : at + 32]))
    for parameter, grad in zip(weights, grads):
        ops.assign_sub(parameter, 0.05 * grad)
    if k % 15 == 0:
        print(f"step {k} loss {float(loss):.6f} depth {int(done)}")
    if k == 30:
        handle.remove()
    best, waited = (float(loss), 0) if float(loss) < best else (best, waited + 1)
    if waited > 20:
        break
print(len(seen), f"{sum(seen):.5f}")
report(net)
