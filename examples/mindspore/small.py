"""What the other examples train: two layers on 64 samples."""

import mindspore as ms
import numpy as np
from mindspore import dataset, nn


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(4, 8)
        self.relu = nn.ReLU()
        self.fc2 = nn.Dense(8, 3)

    def construct(self, x):
        return self.fc2(self.relu(self.fc1(x)))


def samples(count=64, batch=8):
    rng = np.random.RandomState(0)
    inputs = rng.randn(count, 4).astype(np.float32)
    labels = np.abs(inputs[:, :3]).argmax(1).astype(np.int32)
    return dataset.NumpySlicesDataset({"data": inputs, "label": labels}, shuffle=False).batch(batch)


def model(**more):
    ms.set_seed(1)
    net = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return net, ms.train.Model(net, loss, nn.Momentum(net.trainable_params(), 0.1, 0.9), **more)
