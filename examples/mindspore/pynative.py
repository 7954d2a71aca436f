"""PyNative mode: one op, a function, and gradients of a function.

Blocks of seed 003. `tensonde debug pynative.py` stops at each op.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
ms.set_seed(1)
conv = nn.Conv2d(3, 4, 3, weight_init="ones", bias_init="zeros")
print(conv(Tensor(np.ones((1, 3, 5, 5), np.float32))).asnumpy()[0, 0])


def twice_and_once(x, y):
    return ops.add(ops.add(x, y), x)


ones = Tensor(np.ones((3, 3), np.float32))
print(twice_and_once(ones, ones))


def product(x, y):
    return x * y


slopes = ops.GradOperation(get_all=True)(product)(Tensor(1, ms.int32), Tensor(2, ms.int32))
print([int(slope) for slope in slopes])
