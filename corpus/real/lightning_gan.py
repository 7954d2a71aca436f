"""Lightning with manual optimization: two optimizers, toggled."""

# needs: lightning
import logging
import tempfile
import warnings

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
import lightning as L
import torch
from fingerprint import report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def training_step(self, batch, _):
        (real,) = batch
        opt_g, opt_c = self.optimizers()
        self.toggle_optimizer(opt_c)
        fake = self.generator(torch.randn(len(real), 4)).detach()
        loss = nn.functional.softplus(-self.critic(real)).mean() + nn.functional.softplus(self.critic(fake)).mean()
        opt_c.zero_grad()
        self.manual_backward(loss)
        opt_c.step()
        self.untoggle_optimizer(opt_c)
        self.toggle_optimizer(opt_g)
        loss = nn.functional.softplus(-self.critic(self.generator(torch.randn(len(real), 4)))).mean()
        opt_g.zero_grad()
        self.manual_backward(loss)
        opt_g.step()
        self.untoggle_optimizer(opt_g)

    def configure_optimizers(self):
        return (
            torch.optim.Adam(self.generator.parameters(), 1e-3, betas=(0.5, 0.9)),
            torch.optim.Adam(self.critic.parameters(), 1e-3, betas=(0.5, 0.9)),
        )


L.seed_everything(0, verbose=False)
points = torch.randn(512, 2) * 0.3 + torch.tensor([1.0, -1.0])
model = GAN()
with tempfile.TemporaryDirectory() as folder:
    trainer = L.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(model, DataLoader(TensorDataset(points), batch_size=32, shuffle=True))
report(model)
