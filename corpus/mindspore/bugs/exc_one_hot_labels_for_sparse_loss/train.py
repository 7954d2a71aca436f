import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(15)
rng = np.random.default_rng(15)
x = rng.normal(size=(96, 5)).astype(np.float32)
y = (x.argmax(1)).astype(np.int32)
y_hot = np.eye(5, dtype=np.float32)[y]

net = nn.SequentialCell(nn.Dense(5, 10), nn.ReLU(), nn.Dense(10, 5))
loss_fn = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
net_loss = nn.WithLossCell(net, loss_fn)
train_net = nn.TrainOneStepCell(net_loss, nn.Momentum(net.trainable_params(), 0.1, 0.9))
train_net.set_train()
for epoch in range(3):
    for i in range(0, 96, 16):
        loss = train_net(Tensor(x[i : i + 16]), Tensor(y_hot[i : i + 16]))
    print(epoch, loss)
