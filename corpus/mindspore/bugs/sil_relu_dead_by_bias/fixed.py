import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds
from mindspore.train import LossMonitor, Model

ms.set_seed(1)
rng = np.random.default_rng(1)
x = rng.normal(size=(320, 9)).astype(np.float32)
y = np.sin(x[:, :1]).astype(np.float32) + x[:, 1:2]


class Regressor(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enter = nn.Dense(9, 40, bias_init="zeros")
        self.act = nn.ReLU()
        self.leave = nn.Dense(40, 1)

    def construct(self, x):
        return self.leave(self.act(self.enter(x)))


net = Regressor()
data = ds.GeneratorDataset(lambda: ((a, b) for a, b in zip(x, y)), ["x", "y"]).batch(32)
model = Model(net, nn.MSELoss(), nn.Adam(net.trainable_params(), learning_rate=0.005))
model.train(4, data, callbacks=LossMonitor(10), dataset_sink_mode=False)
