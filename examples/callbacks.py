"""Callbacks and metrics as in MindSpore's guide to custom debugging information, in PyTorch: `python examples/callbacks.py`."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tensonde.train import Callback, LossMonitor, Model, ModelCheckpoint, TimeMonitor, save_checkpoint


class StopAtTime(Callback):
    """The guide's example; `tensonde.train` has one ready-made."""

    def __init__(self, run_time):
        super().__init__()
        self.run_time = run_time * 60

    def begin(self, run_context):
        cb_params = run_context.original_args()
        cb_params.init_time = time.time()

    def step_end(self, run_context):
        cb_params = run_context.original_args()
        epoch_num = cb_params.cur_epoch_num
        step_num = cb_params.cur_step_num
        loss = cb_params.net_outputs
        cur_time = time.time()
        if (cur_time - cb_params.init_time) > self.run_time:
            print("epoch:", epoch_num, "step:", step_num, "loss:", loss.item())
            run_context.request_stop()


class SaveCallback(Callback):
    """The guide's example; `tensonde.train.SaveBest` is ready-made."""

    def __init__(self, model, eval_dataset):
        super().__init__()
        self.model = model
        self.eval_dataset = eval_dataset
        self.acc = 0.5

    def step_end(self, run_context):
        cb_params = run_context.original_args()
        result = self.model.eval(self.eval_dataset)
        if result["accuracy"] > self.acc:
            self.acc = result["accuracy"]
            file_name = "accuracy.safetensors"
            save_checkpoint(save_obj=cb_params.train_network, ckpt_file_name=file_name)
            print("Save the maximum accuracy checkpoint, the accuracy is", round(self.acc, 4))


def main():
    torch.manual_seed(0)
    x = torch.randn(96, 4)
    y = (x[:, 0] > x[:, 1]).long()
    ds_train = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16, shuffle=True)
    ds_eval = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=16)
    network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    metrics = {"accuracy", "loss", "precision", "recall", "f1_score"}
    model = Model(network, nn.CrossEntropyLoss(), optimizer, metrics)

    model.train(2, ds_train, callbacks=[LossMonitor(), TimeMonitor(), ModelCheckpoint(directory="checkpoints")])
    model.train(2, ds_train, callbacks=SaveCallback(model, ds_eval))
    model.train(100000, ds_train, callbacks=StopAtTime(run_time=0.5 / 60))
    for name, value in sorted(model.eval(ds_eval).items()):
        print(name, value)


if __name__ == "__main__":
    main()
