"""Segmentation with Model: a U-Net, a loss and a metric of its own, EarlyStopping, ReduceLROnPlateau, a History, evaluation during the fit."""

from fingerprint import report
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops
from mindspore.train import EarlyStopping, History, LossMonitor, Metric, Model, ReduceLROnPlateau


class Shapes:
    """Discs on noise, with their masks."""

    def __init__(self, count, seed):
        self.count, self.draw = count, np.random.RandomState(seed)
        self.grid = np.mgrid[:16, :16]
        self.samples = [self.make() for _ in range(count)]

    def make(self):
        centre, radius = self.draw.randint(4, 12, 2), self.draw.randint(2, 5)
        mask = ((self.grid - centre[:, None, None]) ** 2).sum(0) <= radius**2
        image = mask * 0.8 + self.draw.randn(16, 16) * 0.3
        return image[None].astype(np.float32), mask[None].astype(np.float32)

    def __getitem__(self, index):
        return self.samples[index]

    def __len__(self):
        return self.count


def double(before, after):
    return nn.SequentialCell(
        nn.Conv2d(before, after, 3, has_bias=True), nn.BatchNorm2d(after), nn.ReLU(),
        nn.Conv2d(after, after, 3, has_bias=True), nn.BatchNorm2d(after), nn.ReLU(),
    )


class UNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.down, self.pool, self.middle = double(1, 8), nn.MaxPool2d(2, 2), double(8, 16)
        self.up, self.join, self.out = nn.Conv2dTranspose(16, 8, 2, 2, has_bias=True), double(16, 8), nn.Conv2d(8, 1, 1, has_bias=True)

    def construct(self, x):
        skip = self.down(x)
        up = self.up(self.middle(self.pool(skip)))
        return self.out(self.join(ops.cat((up, skip), 1)))


class DiceBCE(nn.LossBase):
    def __init__(self):
        super().__init__()
        self.bce = nn.BCEWithLogitsLoss()

    def construct(self, logits, mask):
        p = ops.sigmoid(logits)
        dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
        return self.get_loss(self.bce(logits, mask) + dice)


class IoU(Metric):
    def __init__(self):
        super().__init__()
        self.clear()

    def clear(self):
        self.both = self.either = 0

    def update(self, *inputs):
        guess, mask = self._convert_data(inputs[0]) > 0, self._convert_data(inputs[1]) > 0.5
        self.both += np.logical_and(guess, mask).sum()
        self.either += np.logical_or(guess, mask).sum()

    def eval(self):
        return self.both / max(self.either, 1)


train = ds.GeneratorDataset(Shapes(96, 1), ["image", "mask"], shuffle=True).batch(16)
valid = ds.GeneratorDataset(Shapes(32, 2), ["image", "mask"], shuffle=False).batch(16)
net = UNet()
opt = nn.Adam(net.trainable_params(), ms.Tensor(5e-3, ms.float32))
model = Model(net, DiceBCE(), opt, metrics={"iou": IoU()})
history = History()
callbacks = [
    LossMonitor(6), history,
    ReduceLROnPlateau(monitor="iou", mode="max", patience=1, factor=0.5, verbose=False),
    EarlyStopping(monitor="iou", mode="max", patience=2, verbose=False),
]
model.fit(4, train, valid, callbacks=callbacks, dataset_sink_mode=False, valid_dataset_sink_mode=False)
print(sorted(history.epoch), {k: len(v) for k, v in sorted(history.history.items())})
report(net, opt)
