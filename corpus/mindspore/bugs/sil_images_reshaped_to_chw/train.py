"""Colour images through a dataset pipeline, and a small convolutional network."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.train import Accuracy, LossMonitor, Model

ms.set_seed(31)
rng = np.random.RandomState(31)


def pictures(count, seed):
    """A coloured bar on noise: the class is the direction of the bar and its colour."""
    draw = np.random.RandomState(seed)
    images = draw.randint(0, 60, (count, 16, 16, 3)).astype(np.uint8)
    labels = draw.randint(0, 6, count).astype(np.int32)
    for image, label in zip(images, labels):
        at, colour = draw.randint(1, 13), label % 3
        if label < 3:
            image[at : at + 2, :, colour] = 220
        else:
            image[:, at : at + 2, colour] = 220
    return images, labels


def preprocess(image):
    image = image.astype(np.float32) / 255.0
    image = (image - 0.25) / 0.25
    return image.reshape(3, 16, 16)


def create_dataset(count, seed):
    data = ds.NumpySlicesDataset(pictures(count, seed), ["image", "label"], shuffle=True)
    data = data.map(preprocess, input_columns="image")
    return data.batch(32)


net = nn.SequentialCell(
    nn.Conv2d(3, 12, 3), nn.ReLU(), nn.MaxPool2d(2, 2),
    nn.Conv2d(12, 24, 3), nn.ReLU(), nn.MaxPool2d(4, 4),
    nn.Flatten(), nn.Dense(24 * 4, 6),
)
loss = nn.CrossEntropyLoss()
model = Model(net, loss, nn.Adam(net.trainable_params(), 2e-3), metrics={"accuracy": Accuracy()})
model.train(6, create_dataset(480, 1), callbacks=[LossMonitor(15)], dataset_sink_mode=False)
print(model.eval(create_dataset(160, 2), dataset_sink_mode=False))
