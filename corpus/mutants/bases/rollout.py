"""A model of a cart with a pendulum: from state and force to the change of the state, judged by rollouts of many steps."""
import numpy as np
import torch
from torch import nn

STATE, ACTION = 4, 1
DT = 0.05


def physics(state, action):
    x, v, angle, omega = state.T
    force = 6.0 * action[:, 0]
    sin, cos = np.sin(angle), np.cos(angle)
    acceleration = (force + 0.1 * sin * (0.5 * omega**2 + 9.8 * cos)) / (1.0 + 0.1 * sin**2) - 0.3 * v
    turning = (-force * cos - 11.0 * sin) / 1.2 - 0.2 * omega
    return np.stack([x + DT * v, v + DT * acceleration, angle + DT * omega, omega + DT * turning], axis=1)


def collect(episodes, length, seed):
    """Episodes of a random policy: states (episodes, length + 1, 4), actions (episodes, length, 1)."""
    rng = np.random.default_rng(seed)
    state = rng.normal(0, 1, (episodes, STATE)) * np.array([0.5, 0.5, 1.0, 1.0])
    states, actions = [state], []
    push = rng.normal(0, 1, (episodes, ACTION))
    for _ in range(length):
        push = 0.8 * push + 0.6 * rng.normal(0, 1, (episodes, ACTION))
        action = np.clip(push, -2, 2)
        state = physics(state, action)
        states.append(state)
        actions.append(action)
    return np.stack(states, axis=1).astype(np.float32), np.stack(actions, axis=1).astype(np.float32)


class Buffer:
    """Transitions, flat, and their statistics."""

    def __init__(self, states, actions):
        self.state = torch.from_numpy(states[:, :-1].reshape(-1, STATE))
        self.action = torch.from_numpy(actions.reshape(-1, ACTION))
        self.next = torch.from_numpy(states[:, 1:].reshape(-1, STATE))
        self.delta = self.next - self.state

    def sample(self, batch):
        rows = torch.randint(len(self.state), (batch,))
        return self.state[rows], self.action[rows], self.delta[rows]


class Dynamics(nn.Module):
    def __init__(self, buffer, width=96):
        super().__init__()
        inputs = torch.cat([buffer.state, buffer.action], dim=1)
        self.register_buffer("in_mean", inputs.mean(dim=0))
        self.register_buffer("in_std", inputs.std(dim=0))
        self.register_buffer("out_mean", buffer.delta.mean(dim=0))
        self.register_buffer("out_std", buffer.delta.std(dim=0))
        self.first = nn.Linear(STATE + ACTION, width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.mean = nn.Linear(width, STATE)
        self.log_var = nn.Linear(width, STATE)

    def forward(self, state, action):
        """Mean and log-variance of the normalised change."""
        x = (torch.cat([state, action], dim=-1) - self.in_mean) / self.in_std
        x = torch.tanh(self.first(x))
        x = x + torch.tanh(self.second(x))
        x = x + torch.tanh(self.third(x))
        return self.mean(x), self.log_var(x).clamp(-6.0, 2.0)

    def step(self, state, action):
        mean, _ = self(state, action)
        return state + mean * self.out_std + self.out_mean


def nll(mean, log_var, target):
    return 0.5 * ((target - mean) ** 2 * torch.exp(-log_var) + log_var).sum(dim=1).mean()


@torch.no_grad()
def rollout_error(model, states, actions, horizon=20):
    """Error after `horizon` steps of the model alone, in units of the spread of states."""
    model.eval()
    states, actions = torch.from_numpy(states), torch.from_numpy(actions)
    state = states[:, 0]
    errors = []
    for t in range(horizon):
        state = model.step(state, actions[:, t])
        errors.append(((state - states[:, t + 1]) / states.std(dim=(0, 1))).pow(2).mean())
    return torch.stack(errors).mean().sqrt().item()


def main(rounds=6, per_round=250, batch=128, lr=2e-3):
    torch.manual_seed(5)
    states, actions = collect(200, 40, seed=0)
    held_states, held_actions = collect(50, 40, seed=1)
    buffer = Buffer(states, actions)
    model = Dynamics(buffer)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, rounds * per_round)
    for number in range(rounds):
        model.train()
        total = 0.0
        for _ in range(per_round):
            state, action, delta = buffer.sample(batch)
            mean, log_var = model(state, action)
            target = (delta - model.out_mean) / model.out_std
            loss = nll(mean, log_var, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        error = rollout_error(model, held_states, held_actions)
        print(f"round {number} nll {total / per_round:.3f} rollout error {error:.4f}")
    return rollout_error(model, held_states, held_actions)


if __name__ == "__main__":
    print(f"final rollout_error: {main():.4f}")
