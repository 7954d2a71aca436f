"""TrainOneStepWithLossScaleCell with a dynamic loss scale, and a frozen backbone."""

from fingerprint import report
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn


class Backbone(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, has_bias=True)
        self.norm, self.relu, self.flatten = nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()

    def construct(self, x):
        return self.flatten(self.relu(self.norm(self.conv(x))))


class Classifier(nn.Cell):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = Backbone(), nn.Dense(4 * 36, 3)

    def construct(self, x):
        return self.head(self.backbone(x))


net = Classifier()
for parameter in net.backbone.get_parameters():
    parameter.requires_grad = False
optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9, weight_decay=1e-4)
manager = nn.DynamicLossScaleUpdateCell(loss_scale_value=2**12, scale_factor=2, scale_window=10)
train_net = nn.TrainOneStepWithLossScaleCell(
    nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer, scale_sense=manager
)
train_net.set_train()
net.backbone.set_train(False)
patterns = np.random.randn(3, 1, 6, 6).astype(np.float32)
for step in range(40):
    labels = np.random.randint(0, 3, 24).astype(np.int32)
    images = patterns[labels] + 0.5 * np.random.randn(24, 1, 6, 6).astype(np.float32)
    loss, overflow, scale = train_net(Tensor(images, ms.float32), Tensor(labels))
    if step % 10 == 9:
        print(f"step {step} loss {float(loss.asnumpy()):.5f} overflow {bool(overflow)} scale {float(scale.asnumpy())}")
report(net, optimizer)
