import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(21)
rng = np.random.default_rng(21)
tokens = rng.integers(0, 30, (384, 12)).astype(np.int32)
marks = (tokens.max(1) > 27).astype(np.int32)


class Text(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16, embedding_table="xavier_uniform")
        self.fc = nn.Dense(16, 24)
        self.out = nn.Dense(24, 2)

    def construct(self, ids):
        return self.out(ops.relu(self.fc(ops.amax(self.embed(ids), 1))))


net = Text().set_train()
criterion = nn.CrossEntropyLoss()
optim = nn.SGD(net.trainable_params(), 0.1)


def forward(ids, y):
    return criterion(net(ids), y)


grad_op = ms.value_and_grad(forward, None, optim.parameters)
for step in range(60):
    pick = rng.integers(0, 384, 48)
    loss, grads = grad_op(Tensor(tokens[pick]), Tensor(marks[pick]))
    grads = ops.clip_by_global_norm(grads, 1e-6)
    optim(grads)
    if step % 20 == 19:
        print(step, float(loss))
