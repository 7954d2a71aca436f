"""Callbacks of `Model.train`: those of MindSpore, and own ones.

Blocks of seed 004: checkpoint, loss and summary; what a callback is told and when; stop after a time; keep the best.
One constructed the loss under a wrong name: mended. LossMonitor ends a training at a loss that is NaN.
"""

import glob
import time

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.train import Callback, LossMonitor, ModelCheckpoint
from small import model, samples


class Events(Callback):
    """What is called, in order."""

    def begin(self, run_context):
        print("begin")

    def epoch_begin(self, run_context):
        print("epoch", run_context.original_args().cur_epoch_num)

    def step_end(self, run_context):
        print("step", run_context.original_args().cur_step_num, end=" ")

    def epoch_end(self, run_context):
        print("ends")

    def end(self, run_context):
        print("end")


class StopAfter(Callback):
    """Some seconds are enough."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def begin(self, run_context):
        run_context.original_args().began = time.time()

    def step_end(self, run_context):
        if time.time() - run_context.original_args().began > self.seconds:
            run_context.request_stop()


class KeepBest(Callback):
    """A checkpoint whenever the accuracy is better than ever."""

    def __init__(self, trained, held_out):
        super().__init__()
        self.trained, self.held_out, self.best = trained, held_out, 0.5

    def epoch_end(self, run_context):
        accuracy = self.trained.eval(self.held_out)["accuracy"]
        if accuracy > self.best:
            self.best = accuracy
            ms.save_checkpoint(run_context.original_args().train_network, "best.ckpt")


_, trained = model()
checkpoints = ModelCheckpoint(prefix="small", directory="kept")
trained.train(1, samples(), callbacks=[checkpoints, LossMonitor(4)], dataset_sink_mode=False)
print(len(glob.glob("kept/*.ckpt")), "checkpoints")

_, trained = model()
trained.train(1, samples(16), callbacks=Events(), dataset_sink_mode=False)

_, trained = model()
began = time.time()
trained.train(100_000, samples(), callbacks=StopAfter(0.5), dataset_sink_mode=False)
print("stopped early:", time.time() - began < 60)

_, trained = model(metrics={"accuracy"})
best = KeepBest(trained, samples())
trained.train(5, samples(), callbacks=best, dataset_sink_mode=False)
print("a best one is kept:", best.best > 0.5, glob.glob("best*.ckpt"))

net, trained = model()
net.fc2.weight.set_data(Tensor(np.full((3, 8), np.nan, np.float32)))
try:
    trained.train(1, samples(), callbacks=LossMonitor(), dataset_sink_mode=False)
except ValueError as problem:
    print("LossMonitor:", str(problem).splitlines()[0])
