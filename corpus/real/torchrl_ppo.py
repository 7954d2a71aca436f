"""PPO of TorchRL on a TensorDict: an actor, a critic, generalised advantages and a clipped loss."""

# needs: torchrl
import warnings

warnings.filterwarnings("ignore")
import torch
from fingerprint import report
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

torch.manual_seed(0)
policy = TensorDictModule(
    nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3)), in_keys=["observation"], out_keys=["logits"]
)
actor = ProbabilisticActor(policy, in_keys=["logits"], distribution_class=OneHotCategorical, return_log_prob=True)
critic = ValueOperator(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)), in_keys=["observation"])
advantage = GAE(gamma=0.9, lmbda=0.9, value_network=critic)
loss_module = ClipPPOLoss(actor, critic, entropy_coeff=0.01)
optimizer = torch.optim.Adam(loss_module.parameters(), lr=3e-3)
for iteration in range(10):
    observation = torch.randn(8, 17, 4)
    data = TensorDict({"observation": observation[:, :-1]}, batch_size=[8, 16])
    with torch.no_grad():
        actor(data)
    best = observation[:, :-1, :3].argmax(-1)
    data["next"] = TensorDict(
        {
            "observation": observation[:, 1:],
            "reward": (data["action"].argmax(-1) == best).float().unsqueeze(-1),
            "done": torch.zeros(8, 16, 1, dtype=torch.bool),
            "terminated": torch.zeros(8, 16, 1, dtype=torch.bool),
        },
        batch_size=[8, 16],
    )
    with torch.no_grad():
        advantage(data)
    for _ in range(4):
        losses = loss_module(data.reshape(-1))
        loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(loss_module.parameters(), 1.0)
        optimizer.step()
    print(iteration, f"{data['next', 'reward'].mean().item():.4f} {loss.item():.5f}")
report(actor, critic)
