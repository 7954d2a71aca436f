import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds

ms.set_seed(5)
rng = np.random.default_rng(5)
x = rng.normal(size=(600, 10)).astype(np.float32)
w = rng.normal(size=(10, 3))
y = (x @ w).argmax(1).astype(np.int32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enter = nn.Dense(10, 64)
        self.leave = nn.Dense(64, 3)

    def construct(self, x):
        h = ops.relu(self.enter(x))
        h = ops.dropout(h, p=0.5, training=self.training)
        return self.leave(h)


net = Net()
opt = nn.Adam(net.trainable_params(), 0.01)
loss_fn = nn.CrossEntropyLoss()
train = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
data = ds.NumpySlicesDataset((x[:480], y[:480]), ["x", "y"]).batch(48)
for epoch in range(5):
    net.set_train()
    for a, b in data.create_tuple_iterator():
        loss, grads = train(a, b)
        opt(grads)
    net.set_train(False)
    guess = net(Tensor(x[480:])).asnumpy().argmax(1)
    print(epoch, loss, (guess == y[480:]).mean())
