"""An input of known numbers, and a learning rate that warms up.

Blocks of seed 001: the input for a comparison of losses, and the schedule class.
"""

import numpy as np
from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

given = Tensor(np.random.RandomState(0).randint(0, 10, (3, 5, 10)).astype(np.float32))
print(given.shape, given.dtype, float(given.asnumpy().sum()))


class WarmUp(LearningRateSchedule):
    def __init__(self, rate, steps):
        super().__init__()
        if not isinstance(rate, float) or rate < 0:
            raise TypeError(f"the rate must be a float of at least 0, not {rate!r}")
        self.rate, self.steps = rate, steps

    def construct(self, global_step):
        return (
            self.rate * ops.minimum(global_step, Tensor(self.steps, mstype.int32)).astype(mstype.float32) / self.steps
        )


warm_up = WarmUp(0.1, 4)
print([round(float(warm_up(Tensor(step, mstype.int32))), 4) for step in range(6)])
layer = nn.Dense(2, 2)
optimizer = nn.Momentum(layer.trainable_params(), warm_up, 0.9)
for step in range(3):
    print("step", step, "rate", round(float(optimizer.get_lr()), 4))
    optimizer(tuple(Tensor(np.ones(held.shape, np.float32)) for held in layer.trainable_params()))
