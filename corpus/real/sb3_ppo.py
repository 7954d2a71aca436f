"""PPO of Stable-Baselines3 on CartPole."""

# needs: stable-baselines3
from fingerprint import report
from stable_baselines3 import PPO

model = PPO("MlpPolicy", "CartPole-v1", n_steps=256, batch_size=64, n_epochs=4, seed=0, device="cpu", verbose=0)
model.learn(1024)
print(model.num_timesteps)
report(model.policy, model.policy.optimizer)
