"""GRAPH_MODE with Model.train, dynamic loss scale and an evaluation; and a cell that counts in a Parameter."""

from fingerprint import report
import numpy as np
import mindspore as ms
import mindspore.dataset as ds
from mindspore import Parameter, Tensor, nn, ops
from mindspore.train import LossMonitor, MAE, Model

ms.set_context(mode=ms.GRAPH_MODE)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(5, 16), nn.Dense(16, 1)
        self.act = nn.Tanh()
        self.calls = Parameter(Tensor(0, ms.int32), name="calls", requires_grad=False)

    def construct(self, x):
        self.calls += 1
        return self.fc2(self.act(self.fc1(x)))


x = np.random.randn(160, 5).astype(np.float32)
y = np.sin(x.sum(1, keepdims=True)).astype(np.float32)
dataset = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False).batch(20)
net = Net()
optimizer = nn.Adam(net.trainable_params(), 0.01)
model = Model(net, nn.MSELoss(), optimizer, metrics={"mae": MAE()})
model.train(4, dataset, callbacks=[LossMonitor(4)], dataset_sink_mode=False)
print({name: round(float(value), 6) for name, value in model.eval(dataset, dataset_sink_mode=False).items()})
print("calls", int(net.calls.asnumpy()))
report(net, optimizer)
