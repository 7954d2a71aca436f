import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds
from mindspore.train import LossMonitor, Model

ms.set_seed(4)
rng = np.random.default_rng(4)
x = rng.normal(size=(512, 16)).astype(np.float32)
y = (x @ rng.normal(size=(16, 4)).astype(np.float32)).argmax(1).astype(np.int32)
data = ds.NumpySlicesDataset((x, y), ["x", "y"]).batch(64)
net = nn.SequentialCell(nn.Dense(16, 64), nn.ReLU(), nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 4))
opt = nn.Momentum(net.trainable_params(), 0.05, 0.9, weight_decay=1e-4)
model = Model(net, nn.CrossEntropyLoss(), opt)
model.train(10, data, callbacks=[LossMonitor(8)])
