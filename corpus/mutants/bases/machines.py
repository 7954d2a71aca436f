"""Finding faults of machines: an autoencoder learns windows of healthy sensors, the reconstruction error is the score, measured by AUC."""
import numpy as np
import torch
import torch.nn as nn

WINDOW, SENSORS = 16, 4


def record(rng, length, faulty):
    """Sensors of a machine: temperature, pressure, current and speed, which go together; a fault breaks that for a while."""
    t = np.arange(length)
    load = np.sin(t / 11.0 + rng.uniform(0, 6)) + 0.4 * np.sin(t / 3.7 + rng.uniform(0, 6))
    speed = 1500 + 200 * load
    current = 12 + 3 * load + 0.5 * np.roll(load, 2)
    pressure = 4.0 - 0.8 * load ** 2
    temperature = 60 + 9 * np.roll(load, 4)
    data = np.stack([temperature, pressure, current, speed], axis=1)
    data += rng.normal(0, 1, data.shape) * np.array([1.0, 0.1, 0.3, 20.0])
    fault = np.zeros(length, dtype=bool)
    if faulty:
        for start in range(40, length - 40, 90):
            part = slice(start, start + 25)
            sensor = rng.integers(0, SENSORS)
            data[part, sensor] = data[part, sensor][::-1] + 0.5 * data[:, sensor].std()
            fault[part] = True
    return data.astype(np.float32), fault


def windows(data, fault, stride):
    starts = range(0, len(data) - WINDOW + 1, stride)
    x = np.stack([data[s:s + WINDOW] for s in starts])
    y = np.array([fault[s:s + WINDOW].mean() > 0.5 for s in starts])
    return torch.from_numpy(x), torch.from_numpy(y)


class Scaler:
    def fit(self, data):
        self.mean = data.mean(axis=0)
        self.std = data.std(axis=0)
        return self

    def transform(self, data):
        return (data - self.mean) / self.std


class Autoencoder(nn.Module):
    def __init__(self, code=6):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(SENSORS, 16, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * WINDOW // 2, code),
        )
        self.decoder = nn.Sequential(nn.Linear(code, 64), nn.ReLU(), nn.Linear(64, WINDOW * SENSORS))

    def forward(self, x):
        code = self.encoder(x.permute(0, 2, 1))
        return self.decoder(code).view(-1, WINDOW, SENSORS)


def auc(score, label):
    order = score.argsort()
    rank = torch.empty(len(score))
    rank[order] = torch.arange(1, len(score) + 1, dtype=torch.float32)
    positive = int(label.sum())
    return ((rank[label].sum() - positive * (positive + 1) / 2) / (positive * (len(label) - positive))).item()


def scores(model, x):
    model.eval()
    with torch.no_grad():
        return ((model(x) - x) ** 2).mean(dim=(1, 2))


def main():
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    healthy, _ = record(rng, 6000, faulty=False)
    broken, fault = record(rng, 4000, faulty=True)
    scaler = Scaler().fit(healthy)
    train_x, _ = windows(scaler.transform(healthy), np.zeros(len(healthy), dtype=bool), stride=3)
    test_x, test_y = windows(scaler.transform(broken), fault, stride=4)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.MSELoss()
    batch_size = 64
    for epoch in range(12):
        model.train()
        permutation = torch.randperm(len(train_x))
        total = 0.0
        for i in range(0, len(train_x), batch_size):
            batch = train_x[permutation[i:i + batch_size]]
            noisy = batch + 0.1 * torch.randn_like(batch)
            optimizer.zero_grad()
            reconstruction = model(noisy)
            loss = criterion(reconstruction, batch)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        if epoch % 3 == 2:
            print(f"epoch {epoch}: loss {total / len(train_x):.4f}, auc {auc(scores(model, test_x), test_y):.3f}")
    print(f"final auc: {auc(scores(model, test_x), test_y):.4f}")


if __name__ == "__main__":
    main()
