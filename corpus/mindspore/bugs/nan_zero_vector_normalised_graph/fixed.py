import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds
from mindspore.train import LossMonitor, Model

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(12)
rng = np.random.default_rng(12)
x = np.abs(rng.normal(size=(256, 6))).astype(np.float32)
x[100] = 0.0
y = rng.integers(0, 3, 256).astype(np.int32)
data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False).batch(32)


class Cosine(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(6, 32, has_bias=False)
        self.fc2 = nn.Dense(32, 3)

    def construct(self, x):
        h = self.fc1(x)
        length = ops.sqrt((h * h).sum(-1, keepdims=True) + 1e-6)
        return self.fc2(h / length)


net = Cosine()
model = Model(net, nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), 0.01, 0.9))
model.train(2, data, callbacks=[LossMonitor(4)], dataset_sink_mode=False)
