import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds
from mindspore.train import Accuracy, LossMonitor, Model, TimeMonitor

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(31)
rng = np.random.default_rng(31)


def pictures(count):
    label = rng.integers(0, 3, count).astype(np.int32)
    image = rng.normal(0, 0.5, (count, 1, 12, 12)).astype(np.float32)
    for n in range(count):
        image[n, 0, :, 4 * label[n] : 4 * label[n] + 4] += 1
    return ds.NumpySlicesDataset((image, label), ["image", "label"], shuffle=True).batch(24, drop_remainder=True)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(1, 8, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 16, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2, 2),
        )
        self.drop = nn.Dropout(p=0.2)
        self.fc = nn.Dense(16 * 9, 3)

    def construct(self, x):
        x = self.features(x)
        return self.fc(self.drop(x.reshape((x.shape[0], -1))))


net = Net()
model = Model(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 2e-3), metrics={"acc": Accuracy()})
model.train(3, pictures(240), callbacks=[LossMonitor(10), TimeMonitor(10)], dataset_sink_mode=False)
print(model.eval(pictures(96), dataset_sink_mode=False))
