"""LeNet on made-up digits with Model.train: callbacks, metrics, a checkpoint, evaluation after training."""

import os
import tempfile

from fingerprint import report
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.common.initializer import Normal
from mindspore.train import (
    Accuracy, Callback, CheckpointConfig, LossMonitor, Model, ModelCheckpoint,
)

rng = np.random.RandomState(0)
PATTERNS = rng.randn(10, 32, 32).astype(np.float32)


def digits(count, seed):
    draw = np.random.RandomState(seed)
    labels = draw.randint(0, 10, count).astype(np.int32)
    images = PATTERNS[labels] + 0.5 * draw.randn(count, 32, 32).astype(np.float32)
    return {"image": images[:, None], "label": labels}


def create_dataset(count, seed, batch_size=32):
    dataset = ds.NumpySlicesDataset(digits(count, seed), shuffle=True)
    dataset = dataset.map(lambda x: x / 2.0, input_columns="image")
    return dataset.batch(batch_size, drop_remainder=True)


class LeNet5(nn.Cell):
    def __init__(self, num_class=10, num_channel=1):
        super().__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120, weight_init=Normal(0.02))
        self.fc2 = nn.Dense(120, 84, weight_init=Normal(0.02))
        self.fc3 = nn.Dense(84, num_class, weight_init=Normal(0.02))
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.fc3(x)


class EvalCallback(Callback):
    def __init__(self, model, dataset):
        self.model, self.dataset = model, dataset

    def epoch_end(self, run_context):
        epoch = run_context.original_args().cur_epoch_num
        print("epoch", epoch, "eval", self.model.eval(self.dataset, dataset_sink_mode=False))


folder = tempfile.mkdtemp()
network = LeNet5()
net_loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
net_opt = nn.Momentum(network.trainable_params(), 0.05, 0.9)
model = Model(network, net_loss, net_opt, metrics={"accuracy": Accuracy()})
config = CheckpointConfig(save_checkpoint_steps=20, keep_checkpoint_max=2)
model.train(
    3, create_dataset(640, 1), dataset_sink_mode=False,
    callbacks=[
        LossMonitor(10), EvalCallback(model, create_dataset(128, 2)),
        ModelCheckpoint(prefix="lenet", directory=folder, config=config),
    ],
)
print(sorted(name for name in os.listdir(folder) if name.endswith(".ckpt")))
restored = ms.load_checkpoint(os.path.join(folder, "lenet-3_20.ckpt"))
print("same", all(np.array_equal(restored[p.name].asnumpy(), p.asnumpy()) for p in network.get_parameters()))
report(network, net_opt)
