import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds
from mindspore.train import LossMonitor, Model

ms.set_seed(6)
rng = np.random.default_rng(6)
x = rng.normal(size=(640, 8)).astype(np.float32)
y = (x[:, :4] ** 2).sum(1, keepdims=True).astype(np.float32)
data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=True).batch(32)
net = nn.SequentialCell(nn.Dense(8, 64), nn.ReLU(), nn.Dense(64, 1))
rate = nn.ExponentialDecayLR(learning_rate=0.01, decay_rate=0.5, decay_steps=data.get_dataset_size() * 4)
model = Model(net, nn.MSELoss(), nn.Adam(net.trainable_params(), learning_rate=rate))
model.train(8, data, callbacks=[LossMonitor(20)], dataset_sink_mode=False)
