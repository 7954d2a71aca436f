import mindspore as ms
import numpy as np
from mindspore import Tensor, nn


def walks():
    rng = np.random.default_rng(8)
    steps = rng.normal(size=(192, 10, 3)).astype(np.float32)
    return steps, (steps.sum(1)[:, :1] > 0).astype(np.float32)


class Recurrent(nn.Cell):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 12, batch_first=True)
        self.head = nn.Dense(12, 1)

    def construct(self, x):
        out, _ = self.rnn(x)
        return self.head(out[:, -1])


ms.set_seed(3)
net = Recurrent()
optimizer = nn.SGD(net.trainable_params(), learning_rate=0.05, momentum=0.9, nesterov=True)
loss_fn = nn.BCEWithLogitsLoss()
net.set_train()


def forward(x, y):
    return loss_fn(net(x), y)


step = ms.value_and_grad(forward, None, optimizer.parameters)
steps, labels = walks()
for epoch in range(3):
    for begin in range(0, 192, 32):
        loss, grads = step(Tensor(steps[begin : begin + 32]), Tensor(labels[begin : begin + 32]))
        optimizer(grads)
    print(f"epoch {epoch} loss {float(loss):.4f}")
