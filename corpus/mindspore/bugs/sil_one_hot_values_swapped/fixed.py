"""A network with soft labels and a loss of its own."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_seed(81)
rng = np.random.RandomState(81)
CLASSES = 5
centres = rng.randn(CLASSES, 12) * 1.5
y = rng.randint(0, CLASSES, 800).astype(np.int32)
x = (centres[y] + rng.randn(800, 12)).astype(np.float32)


class SoftTargetLoss(nn.Cell):
    def __init__(self, smoothing=0.1):
        super().__init__()
        self.on = Tensor(1.0 - smoothing, ms.float32)
        self.off = Tensor(smoothing / (CLASSES - 1), ms.float32)

    def construct(self, logits, label):
        target = ops.one_hot(label, CLASSES, self.on, self.off)
        return -(target * ops.log_softmax(logits, -1)).sum(-1).mean()


net = nn.SequentialCell(nn.Dense(12, 32), nn.ReLU(), nn.Dense(32, CLASSES))
train_net = nn.TrainOneStepCell(nn.WithLossCell(net, SoftTargetLoss()), nn.Adam(net.trainable_params(), 5e-3))
train_net.set_train()
data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=True).batch(50)
for epoch in range(6):
    for batch in data.create_dict_iterator():
        loss = train_net(batch["x"], batch["y"])
    net.set_train(False)
    right = (net(Tensor(x)).argmax(-1).asnumpy() == y).mean()
    net.set_train()
    print(f"epoch {epoch} loss {float(loss):.4f} accuracy {right:.3f}")
