import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds
from mindspore.train import LossMonitor, Model

ms.set_seed(13)
rng = np.random.default_rng(13)


class Samples:
    def __init__(self, count):
        self.x = rng.normal(size=(count, 7)).astype(np.float32)
        self.y = (self.x[:, 0] > 0).astype(np.int32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, n):
        return self.x[n], self.y[n], np.int32(n)


data = ds.GeneratorDataset(Samples(128), ["x", "y", "index"], shuffle=True).batch(16)
net = nn.SequentialCell(nn.Dense(7, 16), nn.ReLU(), nn.Dense(16, 2))
model = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1))
model.train(2, data, callbacks=[LossMonitor(4)], dataset_sink_mode=False)
