"""Metrics: five of them in `Model.eval`, and one by hand.

Blocks of seed 004. One gave callbacks to `Model`, which takes none: they belong to `train` and `eval`. Mended.
"""

import numpy as np
from mindspore import Tensor, train
from small import model, samples

metrics = {
    "accuracy": train.Accuracy(),
    "loss": train.Loss(),
    "precision": train.Precision(),
    "recall": train.Recall(),
    "f1": train.F1(),
}
_, evaluated = model(metrics=metrics)
found = evaluated.eval(samples(), dataset_sink_mode=False)
print({name: np.shape(value) for name, value in found.items()})

accuracy = train.Accuracy()
accuracy.clear()
accuracy.update(Tensor(np.array([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]])), Tensor(np.array([1, 0, 1])))
print("accuracy", round(accuracy.eval(), 4))
