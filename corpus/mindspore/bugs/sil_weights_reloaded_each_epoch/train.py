import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
import os
import tempfile
import mindspore.dataset as ds
from mindspore.train import Callback, LossMonitor, Model

ms.set_seed(9)
rng = np.random.default_rng(9)
x = rng.normal(size=(256, 10)).astype(np.float32)
y = (x @ rng.normal(size=(10, 3)).astype(np.float32)).argmax(1).astype(np.int32)
data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=True).batch(32)


class Warm(Callback):
    """Begins with the pretrained weights."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_train_epoch_begin(self, run_context):
        net = run_context.original_args().train_network
        weights = ms.load_checkpoint(self.path)
        ms.load_param_into_net(net, weights)


net = nn.SequentialCell(nn.Dense(10, 32), nn.ReLU(), nn.Dense(32, 3))
folder = tempfile.mkdtemp()
path = os.path.join(folder, "start.ckpt")
ms.save_checkpoint(net, path)
model = Model(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 0.01))
model.train(6, data, callbacks=[Warm(path), LossMonitor(8)], dataset_sink_mode=False)
