"""Where an error is raised: at the line of the op when every op is waited for, else where its result is first read.

Blocks of seed 000: launch_blocking; the three ways in which a call stack ends; a breakpoint inside a function.
"""

import io
import pdb
import sys
import traceback

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.runtime.launch_blocking()
TABLE = Tensor(np.ones((2, 3), np.float32))


def last_frame(attempt):
    try:
        attempt()
    except Exception as problem:
        where = traceback.extract_tb(problem.__traceback__)
        mine = [frame for frame in where if frame.filename == __file__][-1]
        return f"{type(problem).__name__} in {where[-1].name}, from: {mine.line}"
    return "no error"


class Double(nn.Cell):
    def construct(self, x):
        return x * 2


def out_of_range():
    return ops.Gather()(TABLE, Tensor(np.array([9], np.int32)), 0)


def shapes_do_not_fit():
    return ops.matmul(TABLE, TABLE)


def no_second_input():
    return ms.value_and_grad(Double(), grad_position=(0, 1))(TABLE)


for attempt in (out_of_range, shapes_do_not_fit, no_second_input):
    print(f"{attempt.__name__}: {last_frame(attempt)}")


def stopped_inside(x):
    pdb.Pdb(stdin=io.StringIO("p x\nc\n"), stdout=sys.stdout).set_trace()
    return x + 1


print("gives", stopped_inside(10))
