"""LeNet in GRAPH_MODE: `tensonde debug compiled.py` stops inside of the compiled step, `tensonde run --watch 'fc1:out nan' compiled.py` watches there."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(1)
rng = np.random.default_rng(1)


class LeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.relu, self.pool, self.flatten = nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten()
        self.fc1 = nn.Dense(400, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, 10)

    def construct(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.flatten(self.pool(self.relu(self.conv2(x))))
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


net = LeNet()
step = nn.TrainOneStepCell(
    nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Momentum(net.trainable_params(), learning_rate=0.01, momentum=0.9)
)
step.set_train()
labels = rng.integers(0, 10, 64).astype(np.int32)
images = rng.normal(0, 0.3, (64, 1, 32, 32)).astype(np.float32)
for image, label in zip(images, labels, strict=True):
    image[0, 3 * label : 3 * label + 3] += 1
for k in range(10):
    at = slice(k % 2 * 32, k % 2 * 32 + 32)
    loss = step(Tensor(images[at]), Tensor(labels[at]))
    if k % 10 == 9:
        print(f"step {k} loss {float(loss):.3f}")
