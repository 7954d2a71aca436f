"""Electricity demand of the next day from weather, calendar and the days before: quantiles of every hour (pinball loss)."""

import numpy as np
import torch
from torch import nn

DAYS, HOURS, TEST = 520, 24, 90
QUANTILES = torch.tensor([0.1, 0.5, 0.9])
EPOCHS, BATCH, LR = 45, 32, 4e-3

rng = np.random.default_rng(31)
torch.manual_seed(31)


def simulate():
    """Temperature, weekday and hour make the demand."""
    day = np.arange(DAYS)
    season = 12 * np.sin(2 * np.pi * day / 365.0)
    weather = np.convolve(rng.normal(0, 5, DAYS + 4), np.ones(5) / 2.2, "valid")
    hour = np.arange(HOURS)
    temperature = 10 + (season + weather)[:, None] + 4 * np.sin(2 * np.pi * (hour - 9) / 24)
    wind = np.abs(rng.normal(4, 2, DAYS))
    weekday = day % 7
    base = 300 + 120 * np.exp(-(((hour - 19) / 3.0) ** 2)) + 80 * np.exp(-(((hour - 8) / 2.0) ** 2))
    work = np.where(weekday < 5, 1.0, 0.7)
    holiday = rng.random(DAYS) < 0.06
    work = np.where(holiday, 0.6, work)
    heating = 6.0 * np.maximum(0, 16 - temperature) + 4.0 * np.maximum(0, temperature - 22)
    demand = base * work[:, None] + heating * (1 + 0.1 * wind[:, None]) + rng.normal(0, 12, (DAYS, HOURS))
    return demand, temperature, wind, weekday, holiday


demand, temperature, wind, weekday, holiday = simulate()


def calendar(days):
    angle = 2 * np.pi * days / 365.0
    week = np.eye(7)[weekday[days]]
    return np.concatenate([week, holiday[days, None], np.sin(angle)[:, None], np.cos(angle)[:, None]], 1)


days = np.arange(7, DAYS)
train_days, test_days = days[:-TEST], days[-TEST:]


def standardiser(values):
    mean, std = values.mean(0), values.std(0)
    return lambda rows: (rows - mean) / std


scale_temperature = standardiser(temperature[train_days])
scale_wind = standardiser(wind[train_days])
level, spread = demand[train_days].mean(), demand[train_days].std()


def table(days):
    """One row a day: yesterday and a week ago, the weather forecast, the calendar."""
    yesterday = (demand[days - 1] - level) / spread
    last_week = (demand[days - 7] - level) / spread
    weather = np.concatenate([scale_temperature(temperature[days]), scale_wind(wind[days])[:, None]], 1)
    inputs = np.concatenate([yesterday, last_week, weather, calendar(days)], 1)
    targets = (demand[days] - level) / spread
    return torch.tensor(inputs, dtype=torch.float32), torch.tensor(targets, dtype=torch.float32)


class Forecaster(nn.Module):
    def __init__(self, columns, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(columns, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.head = nn.Linear(width, HOURS * len(QUANTILES))

    def forward(self, inputs):
        return self.head(self.body(inputs)).view(-1, HOURS, len(QUANTILES))


def pinball(predicted, targets):
    error = targets.unsqueeze(-1) - predicted
    return torch.maximum(QUANTILES * error, (QUANTILES - 1) * error).mean()


train_inputs, train_targets = table(train_days)
test_inputs, test_targets = table(test_days)
model = Forecaster(train_inputs.shape[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)


def evaluate():
    model.eval()
    with torch.no_grad():
        predicted = model(test_inputs)
        error = (predicted[..., 1] * spread + level - (test_targets * spread + level)).abs().mean().item()
        inside = ((test_targets > predicted[..., 0]) & (test_targets < predicted[..., 2])).float().mean().item()
    model.train()
    return error, inside


for epoch in range(EPOCHS):
    order = torch.randperm(len(train_inputs))
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        loss = pinball(model(train_inputs[chosen]), train_targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    if epoch % 15 == 14:
        print(f"epoch {epoch}: loss {loss.item():.4f} test error {evaluate()[0]:.2f}")
error, inside = evaluate()
print(f"final error: {error:.3f} inside {inside:.3f}")
