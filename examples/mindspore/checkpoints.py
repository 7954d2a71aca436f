"""Two checkpoints of one training: printed, compared, searched for NaN and Inf.

Blocks of seed 001. Two had mistakes: a name that was never defined, and the truth value of an array. Both are mended here.
`tensonde ckpt step1.ckpt` and `tensonde compare step1.ckpt step2.ckpt` do the same without a script.
"""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from small import Net, samples

np.set_printoptions(precision=3, suppress=True)
ms.set_seed(1)
net = Net()
net.fc1.bias.requires_grad = False  # so that one parameter stays as it is
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
loss_fn = nn.CrossEntropyLoss()
step = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
for number, (x, y) in enumerate(list(samples().create_tuple_iterator())[:2], 1):
    _, gradients = step(x, y)
    optimizer(gradients)
    ms.save_checkpoint(net, f"step{number}.ckpt")

first, second = (ms.load_checkpoint(f"step{number}.ckpt") for number in (1, 2))
for name, parameter in first.items():
    print(name, parameter.asnumpy().shape)
same = [name for name in first if np.array_equal(first[name].asnumpy(), second[name].asnumpy())]
print(f"{len(same)} of {len(first)} parameters are the same: {', '.join(same)}")

spoilt = first["fc2.bias"].asnumpy().copy()
spoilt[:2] = np.nan, np.inf
first["fc2.bias"] = Parameter(Tensor(spoilt), name="fc2.bias")
for name, parameter in first.items():
    values = parameter.asnumpy()
    if not np.isfinite(values).all():
        print(f"{name}: {np.isnan(values).sum()} NaN, {np.isinf(values).sum()} Inf")
