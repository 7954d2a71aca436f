"""Where the ways of two values part in a program's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensonde.program.parting import last, parting, scaled_apart, split
from tensonde.program.ways import Way, way_of

SET = """
class Windows(Dataset):
    def __init__(self, people):
        self.x, self.y = [], []
        for person in people:
            signal, doing = record(person)
            for i in range(9):
                self.x.append(signal[i])
                self.y.append(doing[i])

    def __getitem__(self, i):
        return scaled(self.x[i]), self.y[i]


def scaled(x):
    return x / x.std()


class Trainer:
    def __init__(self, data):
        self.loader = DataLoader(data, batch_size=4)

    def fit(self):
        return [self.step(batch) for batch in self.loader]

    def step(self, batch):
        x, y = batch
        use(x, y)


Trainer(Windows(range(3))).fit()
"""
COLLATED = """
def collate(batch):
    x = [torch.tensor(a) for a, _ in batch]
    y = [torch.tensor(b) for _, b in batch]
    return pad(x), pad(y)


for x, y in DataLoader(samples, collate_fn=collate):
    use(x, y)
"""
CLOSURE = """
def batcher(data):
    order = list(range(len(data)))

    def following():
        rows = [data[i] for i in order]
        x = [row[0] for row in rows]
        y = [row[1] for row in rows]
        return x, y

    return following


following = batcher(samples)
while True:
    x, y = following()
    use(x, y)
"""
PARTED = {
    "a label of the next row": SET.replace("doing[i])", "doing[i + 1])  # HERE"),
    "a collate function that sorts one of both": COLLATED.replace(
        "for _, b in batch]", "for _, b in sorted(batch)]  # HERE"
    ),
    "rows that are sorted in between": CLOSURE.replace(
        "        y = [", "        rows = sorted(rows)  # HERE\n        y = ["
    ),
    "rows in another order, one by one": "x = [a[k] for k in rows]\ny = [b[k] for k in sorted(rows)]  # HERE\nuse(x, y)\n",
    "labels that are shuffled": "x, y = load()\nrandom.shuffle(y)  # HERE\nuse(x, y)\n",
    "a second draw": "order = torch.randperm(9)\nx = a[order]\norder = torch.randperm(9)\ny = b[order]  # HERE\nuse(x, y)\n",
    "an order that one of both does not get": (
        "def batches():\n    order = torch.randperm(9)\n    for k in range(0, 9, 3):\n        x = a[order[k:k + 3]]\n"
        "        y = b[k:k + 3]  # HERE\n        yield x, y\nfor x, y in batches():\n    use(x, y)\n"
    ),
    "one column that gets other numbers": "t = load()\nt[:, 1] = numbers[torch.argsort(t[:, 1])]  # HERE\nx, y = t[:, 0], t[:, 1]\nuse(x, y)\n",
    "parts of samples, by zip": "x, y = zip(*samples)\ny = sorted(y)  # HERE\nuse(x, y)\n",
    "one after the other in a generator": (
        "def load():\n    rows = a[torch.randperm(9)]\n    return tuple(scaled(part) for part in (a[1:], rows))  # HERE\nx, y = load()\nuse(x, y)\n"
    )
    .replace("rows = a[torch.randperm(9)]", "rows = a[torch.randperm(9)]  # HERE")
    .replace("rows))  # HERE", "rows))"),
    "a method that is called sample": (
        "class Memory:\n    def sample(self, n):\n        rows = random.sample(self.rows, n)\n        return [r[0] for r in rows], random.sample([r[1] for r in rows], n)  # HERE\n\n"
        "class Agent:\n    def learn(self):\n        x, y = self.memory.sample(9)\n        use(x, y)\n"
    ),
    "a method of another object that is called sample": (
        "import random\nclass Memory:\n    def sample(self, n):\n        rows = random.sample(self.rows, n)\n        return self.x[rows], self.y[random.sample(self.rows, n)]  # HERE\n\n"
        "memory = Memory()\nx, y = memory.sample(9)\nuse(x, y)\n"
    ),
    "counted labels, laid out in another way": "x = torch.cat([part[:6] for part in parts])\ny = torch.arange(5).repeat(6)  # HERE\nuse(x, y)\n",
    "only inputs are mixed": "def load():\n    return a[mixed], b  # HERE\nx, y = load()\nuse(x, y)\n",
}


@pytest.mark.parametrize("name", PARTED)
def test_the_line_is_found_at_which_two_part(tmp_path: Path, name: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(PARTED[name])
    lines = PARTED[name].splitlines()
    used = next(k for k, line in enumerate(lines, 1) if "use(x, y)" in line)
    here = next(k for k, line in enumerate(lines, 1) if "# HERE" in line)
    place = parting(way_of(str(path), used, "x"), way_of(str(path), used, "y"))
    assert place == (str(path), here)


ALIKE = [
    "x, y = load()\nuse(x, y)\n",
    "order = torch.randperm(9)\nx = a[order]\ny = b[order]\nuse(x, y)\n",
    "x, y = rows[:, 0], rows[:, 1]\nuse(x, y)\n",
    "def make():\n    kind = random.choice('ab')\n    return kind, 2\n\n\nsamples = [make() for _ in range(9)]\nx, y = zip(*samples)\nx = x[None, :, ...]\nuse(x, y)\n",
]


@pytest.mark.parametrize("text", [COLLATED, CLOSURE, *ALIKE])
def test_what_is_treated_alike_does_not_part(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    used = next(k for k, line in enumerate(text.splitlines(), 1) if "use(x, y)" in line)
    assert parting(way_of(str(path), used, "x"), way_of(str(path), used, "y")) is None


MOVED = """
def shaken(x):
    return np.roll(x, 1)


class Pictures(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __getitem__(self, k):
        return shaken(self.x[k]).permute(2, 0, 1), self.y[k]


x, y = load()
x = torch.flip(x, dims=(2, 3))
x_train, y_train = x[:80], y[:80]
for x, y in DataLoader(Pictures(x_train, y_train)):
    use(x, y)
"""


def _ways(path: Path, text: str) -> tuple[Way, Way]:
    path.write_text(text)
    used = next(k for k, line in enumerate(text.splitlines(), 1) if "use(x, y)" in line)
    return way_of(str(path), used, "x"), way_of(str(path), used, "y")


def test_what_moves_within_a_sample_parts_no_samples(tmp_path: Path) -> None:
    one, other = _ways(tmp_path / "train.py", MOVED)
    assert parting(one, other) is not None, "positions may have been moved"
    assert parting(one, other, whole=True) is None
    assert split(one, other) is None


def test_what_is_done_within_samples_is_not_the_same_as_what_is_done_to_all(tmp_path: Path) -> None:
    text = MOVED.replace("x_train, y_train = x[:80], y[:80]", "x_train, y_train = x[:80], roll(y[:80], 1)")
    text = text.replace("return shaken(self.x[k])", "return roll(self.x[k], 3)")
    one, other = _ways(tmp_path / "train.py", text)
    place = parting(one, other, whole=True)
    assert place is not None
    assert "roll(y[:80], 1)" in text.splitlines()[place[1] - 1]


def test_rows_that_are_cut_at_another_place(tmp_path: Path) -> None:
    text = MOVED.replace("x_train, y_train = x[:80], y[:80]", "x_train = x[:80]\ny_train = y[20:]")
    one, other = _ways(tmp_path / "train.py", text)
    assert parting(one, other, whole=True) is None
    place = split(one, other)
    assert place is not None
    assert text.splitlines()[place[1] - 1] == "y_train = y[20:]"


PREPARED = """
def prepared(raw, mean, train):
    x = raw - mean
    return x / 255


x_train = prepared(load(), 3, True)
x_test = prepared(load_others(), 4, False)
use(x_train, x_test)
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PREPARED, "x_test = prepared(load_others(), 4, False)"),
        (PREPARED.replace("return x / 255", "return x / 255 if train else x"), "return x / 255 if train else x"),
        (PREPARED.replace("use(", "x_test = x_test / 2\nuse("), "x_test = x_test / 2"),
        (PREPARED.replace("return x / 255", "return x"), None),
    ],
)
def test_where_two_may_be_scaled_apart(tmp_path: Path, text: str, line: str | None) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    used = len(text.splitlines())
    place = scaled_apart(way_of(str(path), used, "x_train"), way_of(str(path), used, "x_test"))
    assert (place and text.splitlines()[place[1] - 1].strip()) == line


def test_a_function_is_followed_by_the_call_that_leads_there(tmp_path: Path) -> None:
    text = "def cut(rows):\n    return rows[2:]\n\n\nx = cut(load())\ny = cut(sorted(other()))\nuse(x, y)\n"
    one, other = _ways(tmp_path / "train.py", text)
    assert parting(one, other) == (str(tmp_path / "train.py"), 6)
    assert not [deed for deed in one.deeds if deed.text == "sorted"]


def test_a_division_on_the_way_is_found(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SET)
    lines = SET.splitlines()
    used = next(k for k, line in enumerate(lines, 1) if "use(x, y)" in line)
    there = next(k for k, line in enumerate(lines, 1) if "x / x.std()" in line)
    assert last(way_of(str(path), used, "x"), "division") == (str(path), there)
    assert last(way_of(str(path), used, "y"), "division") is None


def test_a_file_that_cannot_be_read_has_no_ways(tmp_path: Path) -> None:
    assert not way_of(str(tmp_path / "gone.py"), 1, "x").deeds
