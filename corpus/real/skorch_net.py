"""A scikit-learn pipeline and a grid of two around a skorch classifier."""

# needs: skorch
import numpy as np
import torch
from fingerprint import report
from skorch import NeuralNetClassifier
from skorch.callbacks import EarlyStopping, LRScheduler
from torch import nn

torch.manual_seed(0)
np.random.seed(0)
x = np.random.randn(300, 10).astype(np.float32)
y = (x[:, :3].sum(1) > 0).astype(np.int64)


class Net(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 2))

    def forward(self, x):
        return self.layers(x)


net = NeuralNetClassifier(
    Net, criterion=nn.CrossEntropyLoss, max_epochs=8, lr=0.05, optimizer=torch.optim.Adam, batch_size=32, verbose=0,
    iterator_train__shuffle=True, callbacks=[EarlyStopping(patience=5), LRScheduler("CosineAnnealingLR", T_max=8)],
)  # fmt: skip
net.fit(x, y)
print([f"{row['train_loss']:.6f}" for row in net.history], net.score(x, y))
report(net.module_)
