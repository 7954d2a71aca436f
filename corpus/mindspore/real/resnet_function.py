"""A small residual network with value_and_grad, a cosine schedule, weight decay groups and gradient clipping."""

from fingerprint import report
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops

rng = np.random.RandomState(3)
COLOURS = rng.randn(4, 3, 8, 8).astype(np.float32)


class Images:
    def __init__(self, count):
        self.labels = rng.randint(0, 4, count)
        self.images = COLOURS[self.labels] + 0.7 * rng.randn(count, 3, 8, 8).astype(np.float32)

    def __getitem__(self, index):
        return self.images[index], self.labels[index].astype(np.int32)

    def __len__(self):
        return len(self.labels)


class Residual(nn.Cell):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride=stride)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3)
        self.bn2 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU()
        self.down = nn.Conv2d(inner, outer, 1, stride=stride) if stride != 1 else None

    def construct(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.down is not None:
            x = self.down(x)
        return self.relu(out + x)


class ResNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.SequentialCell(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.layers = nn.SequentialCell(Residual(8, 8, 1), Residual(8, 16, 2))
        self.head = nn.Dense(16, 4)

    def construct(self, x):
        x = self.layers(self.stem(x))
        return self.head(x.mean((2, 3)))


net = ResNet()
loader = ds.GeneratorDataset(Images(128), ["image", "label"], shuffle=False).batch(16)
per_epoch, epochs = loader.get_dataset_size(), 4
decayed = [p for p in net.trainable_params() if "bn" not in p.name and "bias" not in p.name]
others = [p for p in net.trainable_params() if "bn" in p.name or "bias" in p.name]
schedule = nn.cosine_decay_lr(1e-4, 0.01, per_epoch * epochs, per_epoch, epochs)
optimizer = nn.AdamWeightDecay([{"params": decayed, "weight_decay": 0.01}, {"params": others}], learning_rate=schedule)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)


def forward_fn(data, label):
    logits = net(data)
    return loss_fn(logits, label), logits


grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)


def train_step(data, label):
    (loss, _), grads = grad_fn(data, label)
    grads = ops.clip_by_global_norm(grads, 5.0)
    loss = ops.depend(loss, optimizer(grads))
    return loss


for epoch in range(epochs):
    net.set_train(True)
    for batch, (data, label) in enumerate(loader.create_tuple_iterator()):
        loss = train_step(data, label)
        if batch % 4 == 0:
            print(f"epoch {epoch} batch {batch} loss {float(loss.asnumpy()):.6f}")
    net.set_train(False)
    right = sum(float((net(d).argmax(1) == l).sum().asnumpy()) for d, l in loader.create_tuple_iterator())
    print("right", right)
report(net, optimizer)
