import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(7)
np.random.seed(7)
from mindspore import dataset as ds
from mindspore.train import Callback, LossMonitor, Model

rng = np.random.RandomState(1)
images = rng.randn(512, 1, 28, 28).astype(np.float32) * 0.3
targets = rng.randint(0, 10, 512).astype(np.int32)
for k, t in enumerate(targets):
    images[k, 0, 2 * t : 2 * t + 4, 4:20] += 1.5


class LeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.pool = nn.MaxPool2d(2, 2)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(256, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, 10)

    def construct(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.flatten(x)
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


net = LeNet()
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
optimizer = nn.Momentum(net.trainable_params(), 0.02, 0.9)
data = ds.NumpySlicesDataset({"image": images, "label": targets}, shuffle=True).batch(32)
Model(net, loss, optimizer).train(3, data, callbacks=[LossMonitor(16)], dataset_sink_mode=False)
