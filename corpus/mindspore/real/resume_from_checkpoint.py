"""Two runs in one: train, save network, optimizer and epoch; build everything anew, load, go on; a rate list, groups, a frozen layer."""

import os
import tempfile

from fingerprint import report
import mindspore as ms
import mindspore.dataset as ds
import mindspore.dataset.transforms as transforms
import mindspore.dataset.vision as vision
import numpy as np
from mindspore import nn, ops

EPOCHS, BATCH = 4, 32
rng = np.random.RandomState(1)
KINDS = rng.randint(0, 255, (6, 14, 14, 3))


def create_dataset(count, seed, train):
    draw = np.random.RandomState(seed)
    labels = draw.randint(0, 6, count)
    images = np.clip(KINDS[labels] + draw.randint(-60, 60, (count, 14, 14, 3)), 0, 255).astype(np.uint8)
    data = ds.NumpySlicesDataset({"image": images, "label": labels}, shuffle=train)
    data = data.map([vision.Rescale(1 / 255.0, 0.0), vision.Normalize([0.5] * 3, [0.25] * 3), vision.HWC2CHW()], "image")
    data = data.map(transforms.TypeCast(ms.int32), "label")
    return data.batch(BATCH, drop_remainder=train)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.SequentialCell(nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.SequentialCell(nn.Conv2d(8, 16, 3, stride=2, has_bias=True), nn.ReLU(), nn.AvgPool2d(7))
        self.head = nn.Dense(16, 6)

    def construct(self, x):
        return self.head(ops.flatten(self.body(self.stem(x))))


def build(steps):
    net = Net()
    net.stem[0].weight.requires_grad = False
    rates = nn.cosine_decay_lr(1e-5, 0.1, steps * EPOCHS, steps, EPOCHS)
    weights = [p for p in net.trainable_params() if p.name.endswith("weight")]
    rest = [p for p in net.trainable_params() if not p.name.endswith("weight")]
    opt = nn.Momentum([{"params": weights, "weight_decay": 1e-4}, {"params": rest}], rates, 0.9, use_nesterov=True)
    return net, opt


def train(net, opt, data, first, last):
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    grad_fn = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, opt.parameters)
    for epoch in range(first, last):
        net.set_train()
        for image, label in data.create_tuple_iterator(num_epochs=1):
            loss, grads = grad_fn(image, label)
            opt(grads)
        net.set_train(False)
        right = total = 0
        for image, label in test.create_tuple_iterator(num_epochs=1):
            right += (net(image).argmax(1) == label).sum().asnumpy()
            total += len(label)
        print(f"epoch {epoch} loss {float(loss):.6f} accuracy {right / total:.3f}")


data, test = create_dataset(320, 2, True), create_dataset(100, 3, False)
path = os.path.join(tempfile.mkdtemp(), "half.ckpt")
net, opt = build(data.get_dataset_size())
train(net, opt, data, 0, 2)
ms.save_checkpoint(opt, path, append_dict={"epoch": 2, **{p.name: p for p in net.get_parameters()}})

net, opt = build(data.get_dataset_size())
params = ms.load_checkpoint(path)
first = int(params.pop("epoch").asnumpy())
print("not loaded", ms.load_param_into_net(net, params)[0], ms.load_param_into_net(opt, params)[0])
train(net, opt, data, first, EPOCHS)
report(net, opt)
