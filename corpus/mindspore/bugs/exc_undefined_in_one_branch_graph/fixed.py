"""A head that rescales large activations, in GRAPH_MODE."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops
from mindspore.train import LossMonitor, Model

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(61)
rng = np.random.RandomState(61)
x = rng.randn(256, 10).astype(np.float32)
y = (x[:, :1] * 2 + x[:, 3:4]).astype(np.float32)


class Head(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(16, 1)

    def construct(self, h):
        if h.abs().max() > 100.0:
            scale = 100.0 / h.abs().max()
            h = h * scale
        return self.dense(h)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.body = nn.Dense(10, 16)
        self.head = Head()

    def construct(self, x):
        return self.head(ops.relu(self.body(x)))


net = Net()
data = ds.NumpySlicesDataset((x, y), ["x", "y"]).batch(32)
model = Model(net, nn.MSELoss(), nn.Adam(net.trainable_params(), 1e-2))
model.train(3, data, callbacks=[LossMonitor(8)], dataset_sink_mode=False)
