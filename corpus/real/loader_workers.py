"""A CNN fed by data workers that augment, with bf16 autocast, channels_last and OneCycle."""

import numpy as np
import torch
from fingerprint import report
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Shapes(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        draw = np.random.default_rng(index)
        image = draw.normal(0, 0.3, (3, 16, 16)).astype(np.float32)
        label = index % 3
        if label == 0:
            image[:, 4:12, 7:9] += 1.5
        elif label == 1:
            image[:, 7:9, 4:12] += 1.5
        else:
            image[:, 5:11, 5:11] += 1.0
        if torch.rand(()) < 0.5:
            image = image[:, :, ::-1].copy()
        return torch.from_numpy(image), label


def main():
    loader = DataLoader(Shapes(), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, epochs=4, steps_per_epoch=len(loader))
    for epoch in range(4):
        model.train()
        for images, labels in loader:
            with torch.autocast("cpu", torch.bfloat16):
                out = model(images.to(memory_format=torch.channels_last))
                loss = nn.functional.cross_entropy(out.float(), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(epoch, f"{loss.item():.6f}")
    report(model, optimizer)


if __name__ == "__main__":
    main()
