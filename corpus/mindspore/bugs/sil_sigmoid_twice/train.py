import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(2)
rng = np.random.default_rng(2)
rows = rng.normal(size=(480, 14)).astype(np.float32)
tags = (rows[:, :3] + 0.3 * rng.normal(size=(480, 3)) > 0).astype(np.float32)


class Tagger(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(14, 32)
        self.fc2 = nn.Dense(32, 3)
        self.relu = nn.ReLU()
        self.sigmoid = nn.Sigmoid()

    def construct(self, x):
        x = self.fc2(self.relu(self.fc1(x)))
        return self.sigmoid(x)


net = Tagger()
net_with_loss = nn.WithLossCell(net, nn.BCEWithLogitsLoss())
step = nn.TrainOneStepCell(net_with_loss, nn.Adam(net.trainable_params(), 5e-3))
step.set_train()
for epoch in range(4):
    for i in range(0, 480, 48):
        loss = step(Tensor(rows[i : i + 48]), Tensor(tags[i : i + 48]))
    print(epoch, loss.asnumpy())
