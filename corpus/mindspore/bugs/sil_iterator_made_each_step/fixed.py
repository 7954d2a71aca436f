import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds

ms.set_seed(5)
rng = np.random.default_rng(5)
pixels = rng.normal(size=(320, 1, 8, 8)).astype(np.float32)
classes = rng.integers(0, 4, 320).astype(np.int32)
for n in range(320):
    pixels[n, 0, 2 * classes[n] : 2 * classes[n] + 2] += 1.5

dataset = ds.NumpySlicesDataset({"image": pixels, "label": classes}, shuffle=False).batch(32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.fc = nn.Dense(8 * 8 * 8, 4)

    def construct(self, x):
        return self.fc(self.flatten(self.relu(self.conv(x))))


net = Net()
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
train = nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.Momentum(net.trainable_params(), 0.02, 0.9))
train.set_train()
batches = dataset.create_tuple_iterator()
for step in range(40):
    if step % 10 == 0:
        batches = iter(dataset.create_tuple_iterator())
    image, label = next(batches)
    out = train(image, label)
    if step % 10 == 9:
        print(step, out)
