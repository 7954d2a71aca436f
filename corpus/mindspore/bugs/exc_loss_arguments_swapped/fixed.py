"""Digits of 8 by 8 pixels, one hidden layer."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn

ms.set_seed(2)
rng = np.random.RandomState(2)
kinds = rng.randn(10, 64)
labels = rng.randint(0, 10, 600).astype(np.int32)
pixels = (kinds[labels] + 0.5 * rng.randn(600, 64)).astype(np.float32)
train_set = ds.NumpySlicesDataset({"pixels": pixels, "label": labels}, shuffle=True).batch(50)

net = nn.SequentialCell(nn.Dense(64, 48), nn.ReLU(), nn.Dense(48, 10))
criterion = nn.CrossEntropyLoss()
optimizer = nn.Adam(net.trainable_params(), 1e-3)


def forward(pixels, label):
    logits = net(pixels)
    return criterion(logits, label)


grad_fn = ms.value_and_grad(forward, None, optimizer.parameters)
net.set_train()
for epoch in range(3):
    for batch in train_set.create_dict_iterator():
        loss, grads = grad_fn(batch["pixels"], batch["label"])
        optimizer(grads)
    print(epoch, f"{float(loss):.4f}")
