import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(12)
rng = np.random.default_rng(12)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.encoder = nn.SequentialCell(nn.Dense(6, 32), nn.Tanh(), nn.Dense(32, 16), nn.Tanh())
        self.head = nn.Dense(16, 1)

    def construct(self, x):
        return self.head(ops.stop_gradient(self.encoder(x)))


net = Net()
net.set_train()
opt = nn.AdamWeightDecay(net.trainable_params(), 0.01)
cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), opt)
for k in range(60):
    a = rng.normal(size=(32, 6)).astype(np.float32)
    loss = cell(Tensor(a), Tensor(np.sin(2 * a[:, :1]) * a[:, 1:2]))
    if k % 20 == 0:
        print(k, loss)
