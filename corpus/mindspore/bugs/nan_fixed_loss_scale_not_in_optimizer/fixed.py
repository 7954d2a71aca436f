"""A residual network for small images, trained with Model, Momentum and a fixed loss scale."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops
from mindspore.train import FixedLossScaleManager, LossMonitor, Model

ms.set_seed(8)
rng = np.random.RandomState(8)
kinds = rng.randn(5, 3, 12, 12)
y = rng.randint(0, 5, 400).astype(np.int32)
x = (kinds[y] + 0.6 * rng.randn(400, 3, 12, 12)).astype(np.float32)


class Block(nn.Cell):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3)
        self.bn2 = nn.BatchNorm2d(channels)

    def construct(self, x):
        out = ops.relu(self.bn1(self.conv1(x)))
        return ops.relu(self.bn2(self.conv2(out)) + x)


class ResNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.blocks = nn.SequentialCell(Block(8), Block(8))
        self.fc = nn.Dense(8, 5)

    def construct(self, x):
        x = self.blocks(self.stem(x))
        return self.fc(ops.mean(x, (2, 3)))


LOSS_SCALE = 1024
net = ResNet()
dataset = ds.NumpySlicesDataset((x, y), ["image", "label"]).batch(40)
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
opt = nn.Momentum(net.trainable_params(), 0.02, 0.9, loss_scale=LOSS_SCALE)
manager = FixedLossScaleManager(LOSS_SCALE, drop_overflow_update=False)
model = Model(net, loss_fn=loss, optimizer=opt, loss_scale_manager=manager)
model.train(4, dataset, callbacks=[LossMonitor(5)], dataset_sink_mode=False)
