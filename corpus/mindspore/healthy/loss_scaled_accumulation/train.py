import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor
from mindspore.amp import StaticLossScaler, all_finite

ms.set_seed(34)
rng = np.random.default_rng(34)
x = rng.normal(size=(512, 10)).astype(np.float32)
y = (x @ rng.normal(size=(10, 4)).astype(np.float32)).argmax(1).astype(np.int32)
net = nn.SequentialCell(nn.Dense(10, 32), nn.LayerNorm((32,)), nn.ReLU(), nn.Dense(32, 4))
net.set_train()
decayed = [p for p in net.trainable_params() if "weight" in p.name]
others = [p for p in net.trainable_params() if "weight" not in p.name]
rates = nn.cosine_decay_lr(1e-5, 0.01, 40, 8, 5)
opt = nn.AdamWeightDecay([{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], learning_rate=rates)
scaler = StaticLossScaler(1024)
criterion = nn.CrossEntropyLoss()
EVERY = 2


def forward(a, b):
    return scaler.scale(criterion(net(a), b)) / EVERY


grad_fn = ms.value_and_grad(forward, None, opt.parameters)
held = None
for k in range(80):
    at = slice(k * 32 % 512, k * 32 % 512 + 32)
    loss, grads = grad_fn(Tensor(x[at]), Tensor(y[at]))
    held = grads if held is None else tuple(a + b for a, b in zip(held, grads))
    if (k + 1) % EVERY == 0:
        held = scaler.unscale(held)
        if all_finite(held):
            opt(held)
        held = None
    if k % 20 == 19:
        print(k, float(scaler.unscale(loss)))
