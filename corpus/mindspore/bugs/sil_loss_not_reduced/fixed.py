"""A classifier as in the model zoo: Momentum and SoftmaxCrossEntropyWithLogits."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.train import LossMonitor, Model

ms.set_seed(12)
rng = np.random.RandomState(12)
kinds = rng.rand(10, 1, 12, 12)
labels = rng.randint(0, 10, 1280).astype(np.int32)
images = (kinds[labels] + 0.4 * rng.randn(1280, 1, 12, 12) - 0.5).astype(np.float32)


class Network(nn.Cell):
    def __init__(self, num_class=10):
        super().__init__()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(144, 64)
        self.fc2 = nn.Dense(64, 64)
        self.fc3 = nn.Dense(64, num_class)
        self.relu = nn.ReLU()

    def construct(self, x):
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc3(self.relu(self.fc2(x)))


network = Network()
net_loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
net_opt = nn.Momentum(network.trainable_params(), 0.02, 0.9)
dataset = ds.NumpySlicesDataset((images, labels), ["image", "label"]).batch(128, drop_remainder=True)
model = Model(network, net_loss, net_opt)
model.train(8, dataset, callbacks=[LossMonitor(10)], dataset_sink_mode=False)
