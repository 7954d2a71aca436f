"""A classifier whose forward function returns its logits beside the loss."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops

ms.set_seed(121)
rng = np.random.RandomState(121)
centres = rng.randn(4, 10)
y = rng.randint(0, 4, 512).astype(np.int32)
x = (centres[y] + 0.8 * rng.randn(512, 10)).astype(np.float32)
dataset = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=True).batch(32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(10, 24), nn.Dense(24, 4)

    def construct(self, x):
        return self.fc2(ops.relu(self.fc1(x)))


net = Net()
loss_fn = nn.CrossEntropyLoss()
optimizer = nn.Momentum(net.trainable_params(), 0.02, 0.9)


def forward_fn(data, label):
    logits = net(data)
    loss = loss_fn(logits, label)
    return loss, logits


grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters)
net.set_train()
for epoch in range(4):
    right = 0
    for data, label in dataset.create_tuple_iterator():
        (loss, logits), grads = grad_fn(data, label)
        optimizer(grads)
        right += int((logits.argmax(1) == label).sum())
    print(f"epoch {epoch} loss {float(loss):.4f} accuracy {right / 512:.3f}")
