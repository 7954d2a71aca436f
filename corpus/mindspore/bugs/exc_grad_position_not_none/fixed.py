"""Quick start: a classifier of flattened images with a functional training step."""
import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset

mindspore.set_seed(3)


class Digits:
    def __init__(self, size, seed):
        draw = np.random.RandomState(seed)
        centres = np.random.RandomState(0).randn(10, 8, 8)
        self.labels = draw.randint(0, 10, size).astype(np.int32)
        self.images = (centres[self.labels] + 0.4 * draw.randn(size, 8, 8)).astype(np.float32)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]

    def __len__(self):
        return len(self.labels)


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.dense_relu_sequential = nn.SequentialCell(
            nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10)
        )

    def construct(self, x):
        return self.dense_relu_sequential(self.flatten(x))


train_dataset = GeneratorDataset(Digits(512, 1), ["image", "label"], shuffle=True).batch(64)
model = Network()
loss_fn = nn.CrossEntropyLoss()
optimizer = nn.SGD(model.trainable_params(), 1e-1)


def forward_fn(data, label):
    logits = model(data)
    loss = loss_fn(logits, label)
    return loss, logits


grad_fn = mindspore.value_and_grad(forward_fn, None, weights=optimizer.parameters, has_aux=True)


def train_step(data, label):
    (loss, _), grads = grad_fn(data, label)
    optimizer(grads)
    return loss


for epoch in range(3):
    model.set_train()
    for batch, (data, label) in enumerate(train_dataset.create_tuple_iterator()):
        loss = train_step(data, label)
        if batch % 4 == 0:
            print(f"epoch {epoch} batch {batch} loss {loss.asnumpy():.4f}")
