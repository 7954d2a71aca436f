"""Lightning: training and validation loops, a schedule, clipping, and metrics of torchmetrics."""

# needs: lightning
import logging
import tempfile
import warnings

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
import lightning as L
import torch
import torchmetrics
from fingerprint import report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.accuracy(self.net(x), y)
        self.log("accuracy", self.accuracy)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)]


L.seed_everything(0, verbose=False)
x = torch.randn(320, 8)
y = (x @ torch.randn(8, 3)).argmax(1)
model = Classifier()
with tempfile.TemporaryDirectory() as folder:
    trainer = L.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, gradient_clip_val=1.0, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(
        model,
        DataLoader(TensorDataset(x[:256], y[:256]), batch_size=32, shuffle=True),
        DataLoader(TensorDataset(x[256:], y[256:]), batch_size=32),
    )
print({name: f"{value.item():.6f}" for name, value in trainer.callback_metrics.items()})
report(model)
