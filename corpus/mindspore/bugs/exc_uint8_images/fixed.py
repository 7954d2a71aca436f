"""Images straight from a data set of bytes."""
import mindspore as ms
import mindspore.dataset as ds
import mindspore.dataset.vision as vision
import numpy as np
from mindspore import nn
from mindspore.train import LossMonitor, Model

ms.set_seed(4)
rng = np.random.RandomState(4)
kinds = rng.randint(0, 255, (4, 16, 16, 3))
labels = rng.randint(0, 4, 256).astype(np.int32)
images = np.clip(kinds[labels] + rng.randint(-40, 40, (256, 16, 16, 3)), 0, 255).astype(np.uint8)


def create_dataset():
    data = ds.NumpySlicesDataset({"image": images, "label": labels}, shuffle=True)
    data = data.map([vision.Rescale(1 / 255.0, 0.0), vision.HWC2CHW()], input_columns="image")
    return data.batch(32)


net = nn.SequentialCell(
    nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Dense(256, 4)
)
model = Model(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 1e-3))
model.train(2, create_dataset(), callbacks=[LossMonitor(8)], dataset_sink_mode=False)
