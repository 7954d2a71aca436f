"""One step of LeNet by a cell that computes gradients: forward, loss, gradients, optimizer.

The long block of seed 003.
"""

import mindspore as ms
import numpy as np
from mindspore import ParameterTuple, Tensor, nn, ops
from mindspore.common.initializer import TruncatedNormal

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
ms.set_seed(1)
BATCH = 32


class LeNet(nn.Cell):
    def __init__(self, classes=10):
        super().__init__()
        small = TruncatedNormal(0.02)
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid", weight_init=small)
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid", weight_init=small)
        self.fc1 = nn.Dense(400, 120, small, small)
        self.fc2 = nn.Dense(120, 84, small, small)
        self.fc3 = nn.Dense(84, classes, small, small)
        self.relu, self.pool = nn.ReLU(), nn.MaxPool2d(2, 2)

    def construct(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x))).reshape(BATCH, -1)
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


class Gradients(nn.Cell):
    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network = network
        self.weights = ParameterTuple(network.trainable_params())

    def construct(self, x, labels):
        return ops.GradOperation(get_by_list=True)(self.network, self.weights)(x, labels)


net = LeNet()
criterion = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
gradients = Gradients(nn.WithLossCell(net, criterion))
gradients.set_train()

x = Tensor(np.full((BATCH, 1, 32, 32), 0.01, np.float32))
labels = Tensor(np.ones(BATCH, np.int32))
before = float(criterion(net(x), labels))
optimizer(gradients(x, labels))
after = float(criterion(net(x), labels))
print(f"about log(10): {abs(before - np.log(10)) < 0.1}; the step makes it smaller: {after < before}")
