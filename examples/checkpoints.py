"""Did the weights change, and are they sane? As in MindSpore's guide to network debugging, in PyTorch.

(The guide compares arrays with `==` and reads both values from one undefined checkpoint; here each is compared as a whole.)
"""

import numpy as np
import torch
from torch import nn

from tensonde.train import CheckpointConfig, Model, ModelCheckpoint, load_checkpoint

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
network[0].weight.requires_grad_(False)  # frozen: it will be the same
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
data = [(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(2)]
saver = ModelCheckpoint("net", "checkpoints", CheckpointConfig(save_checkpoint_steps=1))
Model(network, nn.MSELoss(), optimizer).train(1, data, saver)

ckpt1 = load_checkpoint("checkpoints/net-1_1.safetensors")
ckpt2 = load_checkpoint("checkpoints/net-1_2.safetensors")
same = 0
for param in ckpt1:
    value1, value2 = ckpt1[param].numpy(), ckpt2[param].numpy()
    if np.array_equal(value1, value2):
        print("same value:", param, value1.shape)
        same += 1
    if np.isnan(value2).any():
        print("NAN value:", param)
    if np.isinf(value2).any():
        print("INF value:", param)
print("All params num:", len(ckpt1))
print("same params num:", same)
