"""A forecaster: cosine decay from a list of learning rates."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops

ms.set_seed(21)
rng = np.random.RandomState(21)
EPOCHS, BATCH = 12, 32
t = np.arange(1400) / 12.0
series = np.sin(t) + 0.5 * np.sin(2.7 * t) + 0.05 * rng.randn(1400)
windows = np.stack([series[i : i + 25] for i in range(1200)]).astype(np.float32)
dataset = ds.NumpySlicesDataset((windows[:, :24], windows[:, 24:]), ["past", "future"], shuffle=True).batch(BATCH)
steps_per_epoch = dataset.get_dataset_size()


class Forecaster(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 16, 5, pad_mode="valid", has_bias=True)
        self.fc = nn.Dense(16 * 20, 1)

    def construct(self, past):
        h = ops.tanh(self.conv(past.expand_dims(1)))
        return self.fc(h.reshape(h.shape[0], -1))


net = Forecaster()
lr = nn.cosine_decay_lr(0.0, 2e-3, total_step=EPOCHS, step_per_epoch=1, decay_epoch=EPOCHS - 1)
optimizer = nn.Adam(net.trainable_params(), learning_rate=lr)
criterion = nn.MSELoss()
step = ms.value_and_grad(lambda past, future: criterion(net(past), future), None, optimizer.parameters)
net.set_train()
for epoch in range(EPOCHS):
    total = 0.0
    for past, future in dataset.create_tuple_iterator():
        loss, grads = step(past, future)
        optimizer(grads)
        total += float(loss)
    print(f"epoch {epoch + 1}: {total / steps_per_epoch:.5f}")
