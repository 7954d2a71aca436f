import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


def boxes():
    rng = np.random.default_rng(9)
    features = rng.normal(size=(160, 20)).astype(np.float32)
    return features, (features @ rng.normal(size=(20, 4)) * 0.3).astype(np.float32)


class Boxes(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(20, 32)
        self.fc2 = nn.Dense(32, 4)

    def construct(self, x):
        return self.fc2(ops.relu(self.fc1(x)))


ms.set_seed(4)
net = Boxes()
optimizer = nn.SGD(net.trainable_params(), learning_rate=0.01, momentum=0.9)
criterion = nn.SmoothL1Loss(reduction="mean")
net.set_train()
train_step = nn.TrainOneStepCell(nn.WithLossCell(net, criterion), optimizer)
features, targets = boxes()
for epoch in range(3):
    for begin in range(0, 160, 16):
        loss = train_step(Tensor(features[begin : begin + 16]), Tensor(targets[begin : begin + 16]))
    print(f"epoch {epoch} loss {float(loss.mean()):.4f}")
