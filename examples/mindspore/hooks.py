"""Gradients seen and changed on their way: of a tensor, by the op HookBackward, and of a cell.

Blocks of seed 000. The third asked for the gradient of a second input, which its cell does not have: mended.
"""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ONE, TWO = Tensor(1, ms.float32), Tensor(2, ms.float32)


def doubled(x, y):
    product = x * y
    product.register_hook(lambda slope: slope * 2)
    return product * y


def numbers(tensors):
    return [np.asarray(one.asnumpy()).reshape(-1).tolist() for one in tensors]


value, slopes = ms.value_and_grad(doubled, grad_position=(0, 1))(ONE, TWO)
print("doubled by its hook:", value, numbers(slopes))

look = ops.HookBackward(lambda slopes: print("HookBackward sees", numbers(slopes)))


def looked_at(x, y):
    return look(x * y) * y


value, slopes = ms.value_and_grad(looked_at, grad_position=(0, 1))(ONE, TWO)
print("only looked at:", value, numbers(slopes))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()
        self.relu.register_backward_hook(self.passed)

    def passed(self, cell, grad_input, grad_output):
        print("cell hook:", numbers(grad_input), numbers(grad_output))

    def construct(self, x):
        return self.relu(x + x)


value, slope = ms.value_and_grad(Net(), grad_position=0)(Tensor(np.ones(1, np.float32)))
print("through the cell:", value, slope)
