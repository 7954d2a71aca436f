"""pytorch-ignite with checkpoints, metrics, schedulers."""

# needs: pytorch-ignite
import tempfile

import torch
from fingerprint import report
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import EarlyStopping, EMAHandler, ModelCheckpoint, TerminateOnNan
from ignite.handlers.param_scheduler import CosineAnnealingScheduler
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(600, 12)
y = (x[:, 0] * x[:, 1] > 0).long()
train = DataLoader(TensorDataset(x[:500], y[:500]), 25, shuffle=True)
val = DataLoader(TensorDataset(x[500:], y[500:]), 50)
model = nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 2))
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
trainer = create_supervised_trainer(model, opt, nn.CrossEntropyLoss())
evaluator = create_supervised_evaluator(model, metrics={"acc": Accuracy(), "loss": Loss(nn.CrossEntropyLoss())})
trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
trainer.add_event_handler(Events.ITERATION_STARTED, CosineAnnealingScheduler(opt, "lr", 1e-2, 1e-3, cycle_size=100))
ema = EMAHandler(model, momentum=0.02)
ema.attach(trainer, name="ema", event=Events.ITERATION_COMPLETED)


@trainer.on(Events.EPOCH_COMPLETED)
def validate(engine):
    evaluator.run(val)
    print(engine.state.epoch, {k: round(v, 5) for k, v in evaluator.state.metrics.items()})


folder = tempfile.mkdtemp()
trainer.add_event_handler(
    Events.EPOCH_COMPLETED, ModelCheckpoint(folder, "m", n_saved=1, require_empty=False), {"model": model, "opt": opt}
)
trainer.run(train, max_epochs=6)
report(model, ema.ema_model, opt)
