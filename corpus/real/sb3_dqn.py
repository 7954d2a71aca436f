"""DQN of Stable-Baselines3 on CartPole."""

# needs: stable-baselines3
from fingerprint import report
from stable_baselines3 import DQN

model = DQN(
    "MlpPolicy", "CartPole-v1", learning_starts=100, train_freq=4, target_update_interval=200, buffer_size=2000,
    seed=0, device="cpu", verbose=0,
)  # fmt: skip
model.learn(1500)
report(model.policy, model.policy.optimizer)
