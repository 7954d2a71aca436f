import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(14)
rng = np.random.default_rng(14)


class Branches(nn.Cell):
    def __init__(self):
        super().__init__()
        self.wide = nn.Conv2d(3, 6, 5, pad_mode="valid")
        self.narrow = nn.Conv2d(3, 6, 3, pad_mode="same")
        self.pool = nn.AvgPool2d(4, 4)
        self.fc = nn.Dense(12 * 4 * 4, 5)

    def construct(self, x):
        x = ops.cat((self.wide(x), self.narrow(x)), axis=1)
        x = self.pool(ops.relu(x))
        return self.fc(x.reshape(x.shape[0], -1))


net = Branches()
loss = nn.CrossEntropyLoss()
train = nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.Adam(net.trainable_params(), 1e-3))
train.set_train()
for k in range(10):
    x = rng.normal(size=(8, 3, 16, 16)).astype(np.float32)
    y = rng.integers(0, 5, 8).astype(np.int32)
    out = train(Tensor(x), Tensor(y))
print(out)
