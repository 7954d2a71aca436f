import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds
from mindspore.train import LossMonitor, Model

ms.set_seed(8)
rng = np.random.default_rng(8)
x = rng.normal(size=(400, 6)).astype(np.float32)
y = (x @ rng.normal(size=(6, 4))).argmax(1).astype(np.int32)
order = np.argsort(y)
x, y = x[order], y[order]
data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False).batch(20)
net = nn.SequentialCell(nn.Dense(6, 32), nn.ReLU(), nn.Dense(32, 4))
model = Model(net, nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
model.train(4, data, callbacks=[LossMonitor(10)], dataset_sink_mode=False)
