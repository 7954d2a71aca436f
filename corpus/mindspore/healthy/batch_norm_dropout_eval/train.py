import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(7)
np.random.seed(7)

rng = np.random.RandomState(1)
centers = rng.randn(4, 8).astype(np.float32)
labels = rng.randint(0, 4, 640).astype(np.int32)
data = centers[labels] + 0.5 * rng.randn(640, 8).astype(np.float32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(8, 32)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(p=0.2)
        self.fc2 = nn.Dense(32, 4)

    def construct(self, x):
        return self.fc2(self.drop(ops.relu(self.norm(self.fc1(x)))))


net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = nn.AdamWeightDecay(net.trainable_params(), 0.005, weight_decay=0.01)


def forward(x, y):
    return criterion(net(x), y)


step = ms.value_and_grad(forward, None, optimizer.parameters)
for epoch in range(4):
    net.set_train(True)
    for k in range(20):
        at = slice(k * 32, k * 32 + 32)
        loss, grads = step(Tensor(data[at]), Tensor(labels[at]))
        optimizer(ops.clip_by_global_norm(grads, 1.0))
    net.set_train(False)
    right = (net(Tensor(data[:128])).argmax(1).asnumpy() == labels[:128]).mean()
    print(f"epoch {epoch} accuracy {right:.3f}")
