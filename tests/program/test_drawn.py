"""Targets that are random numbers, as the text of the program says: silent labels of a benchmark, and labels that only look like them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tensonde.program.drawn import is_drawn

DRAWN = {
    "made in the loop": "for i in range(9):\n    y = torch.randint(0, 10, (32,))\n    use(y)",
    "moved": "y = torch.randint(0, 10, (32,)).to(device).long()\nuse(y)",
    "compared": "y = (torch.rand(32) > 0.5).float()\nuse(y)",
    "a slice": "Y = np.random.randn(100, 1)\nfor i in range(9):\n    y = torch.tensor(Y[i : i + 8])\n    use(y)",
    "two at once": "x, y = torch.randn(8, 4), torch.randn(8, 1)\nuse(y)",
    "a loader": """
X, Y = torch.randn(64, 4), torch.randint(0, 2, (64,))
loader = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True)
for step, (x, y) in enumerate(loader):
    use(y)
""",
    "a data set": """
class Noise(Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 4)
        self.y = torch.randint(0, 2, (n,))
    def __getitem__(self, k):
        return self.x[k], self.y[k]
loader = DataLoader(Noise(64))
for x, y in loader:
    use(y)
""",
    "tokens": """
data = torch.randint(0, 50, (1000,))
def get_batch():
    k = torch.randint(0, 900, (8,))
    x = torch.stack([data[i : i + 8] for i in k])
    y = torch.stack([data[i + 1 : i + 9] for i in k])
    return x, y
for _ in range(9):
    x, y = get_batch()
    use(y)
""",
    "batches made before": "batches = [(torch.randn(8, 4), torch.randn(8)) for _ in range(9)]\nfor x, y in batches:\n    use(y)",
}

LEARNABLE = {
    "of the inputs": "x = torch.randn(8, 4)\ny = x.sum(1)\nuse(y)",
    "by a function": "def label(x):\n    return (x[:, 0] > 0).long()\nx = torch.randn(8, 4)\ny = label(x)\nuse(y)",
    "with noise": "x = torch.randn(8, 4)\ny = x[:, 0] + torch.randn(8)\nuse(y)",
    "in another order": "y = load()\ny = y[torch.randperm(8)]\nuse(y)",
    "a loader": """
X = torch.randn(64, 4)
Y = (X[:, 0] > 0).long()
loader = DataLoader(TensorDataset(X, Y), batch_size=8)
for x, y in loader:
    use(y)
""",
    "from elsewhere": "for x, y in load():\n    use(y)",
}


def asked(text: str, folder: Path) -> bool:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text).strip() + "\n")
    line = next(k for k, code in enumerate(path.read_text().splitlines(), 1) if "use(y)" in code)
    return is_drawn(str(path), "y", line)


@pytest.mark.parametrize("case", DRAWN)
def test_random_numbers(case: str, tmp_path: Path) -> None:
    assert asked(DRAWN[case], tmp_path)


@pytest.mark.parametrize("case", LEARNABLE)
def test_something_to_learn(case: str, tmp_path: Path) -> None:
    assert not asked(LEARNABLE[case], tmp_path)
