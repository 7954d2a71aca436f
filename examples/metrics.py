"""How a metric runs, as in MindSpore's guide to custom debugging information: `python examples/metrics.py`."""

import numpy as np
import torch

from tensonde.train import Metric
from tensonde.train.metrics import Accuracy

x = torch.tensor(np.array([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]]))
y = torch.tensor(np.array([1, 0, 1]))
metric = Accuracy()
metric.clear()
metric.update(x, y)
accuracy = metric.eval()
print("Accuracy is", round(accuracy, 4))


class Hits(Metric):
    """One of your own: clear, update, eval."""

    def clear(self):
        self.right = 0

    def update(self, scores, labels):
        self.right += int((scores.argmax(1) == labels).sum())

    def eval(self):
        return self.right


print("Right:", Hits()(x, y))
