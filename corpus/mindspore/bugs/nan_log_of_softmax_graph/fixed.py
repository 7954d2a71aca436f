import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import mindspore.dataset as ds
from mindspore.train import LossMonitor, Model

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(16)
rng = np.random.default_rng(16)
x = rng.normal(size=(256, 8)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.int32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(8, 16), nn.Dense(16, 2)

    def construct(self, x):
        p = ops.softmax(self.fc2(ops.relu(self.fc1(x))) * 40.0, -1)
        return ops.log(p + 1e-6)


net = Net()
data = ds.NumpySlicesDataset((x, y), ["x", "y"]).batch(32)
model = Model(net, nn.NLLLoss(), nn.Adam(net.trainable_params(), 0.05))
model.train(6, data, callbacks=[LossMonitor(8)], dataset_sink_mode=False)
