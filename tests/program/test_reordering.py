"""Two orders for what belongs together are told from the source, and only where there is no doubt."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tensonde.program.reordering import apart

APART = {
    "a permutation each": """
        x = x[torch.randperm(9)]
        y = y[torch.randperm(9)]
        data = TensorDataset(x, y)
    """,
    "a named permutation each": """
        def load():
            one = np.random.permutation(9)
            two = np.random.permutation(9)
            images = images[one]
            labels = labels[two]
            return images, labels
    """,
    "a shuffle each": """
        random.shuffle(texts)
        random.shuffle(tags)
        for text, tag in zip(texts, tags):
            pass
    """,
    "slices of both, one batch after the other": """
        def batches(x, y, size):
            x = x[torch.randperm(len(x))]
            y = y[torch.randperm(len(y))]
            for start in range(0, len(x), size):
                yield x[start:start + size], y[start:start + size]
    """,
    "a generator of pairs": """
        def batches():
            random.shuffle(texts)
            random.shuffle(tags)
            for k in range(9):
                a, b = texts[k], tags[k]
    """,
    "two orders in one return": """
        def batch(self):
            order = torch.randperm(9)
            return self.x[order], self.y[torch.randperm(9)]
    """,
    "two orders in one call": """
        one = torch.randperm(9)
        two = torch.randperm(9)
        data = TensorDataset(x[one], y[two])
    """,
    "one field of sorted samples": """
        def collate(batch):
            texts = pad([text for text, _ in sorted(batch, key=len)])
            labels = torch.tensor([label for _, label in batch])
            return texts, labels
    """,
    "one field of the samples before they were sorted": """
        def collate(batch):
            first = batch
            batch = sorted(batch, key=len)
            texts = [text for text, _, _ in batch]
            lengths = [n for _, n, _ in batch]
            labels = [label for _, _, label in first]
            return texts, lengths, labels
    """,
    "one of two indices is sorted": """
        batch = Batch(images[rows], labels[np.sort(rows)])
    """,
}
TOGETHER = {
    "all fields of sorted samples": """
        def collate(batch):
            batch = sorted(batch, key=len)
            return [text for text, _ in batch], [label for _, label in batch]
    """,
    "sorted in place": """
        def collate(batch):
            batch.sort(key=len)
            return [text for text, _ in batch], [label for _, label in batch]
    """,
    "the longest of sorted samples": """
        def collate(batch):
            longest = max(len(text) for text, _ in sorted(batch))
            return [text for text, _ in batch], [label for _, label in batch]
    """,
    "the same field in two orders": """
        def vocabulary(counts):
            words = [word for word, _ in sorted(counts)]
            return words, [word for word, _ in counts]
    """,
    "the next row": """
        def draw(self):
            return self.states[rows], self.following[rows + 1]
    """,
    "negatives by turning a batch around": """
        def negatives(rows):
            return images[rows], texts[rows.flip(0)], loss(images[rows], texts[rows.roll(1)])
    """,
    "two looks at one thing": """
        pair = scores(z[rows], z[np.sort(rows)])
    """,
    "one order in one return": """
        def batch(self):
            order = torch.randperm(9)
            return self.x[order], self.y[order]
    """,
    "a mixture of a batch with itself": """
        one = torch.randperm(9)
        two = torch.randperm(9)
        pair = mix(x[one], x[two])
    """,
    "one permutation": """
        order = torch.randperm(9)
        x = x[order]
        y = y[order]
        data = TensorDataset(x, y)
    """,
    "the same seed twice": """
        random.seed(1)
        random.shuffle(texts)
        random.seed(1)
        random.shuffle(tags)
        data = zip(texts, tags)
    """,
    "never used as a pair": """
        a = a[torch.randperm(9)]
        b = b[torch.randperm(9)]
        train(a)
        test(b)
    """,
    "slices of each by itself": """
        def batches(a, b, size):
            a = a[torch.randperm(len(a))]
            b = b[torch.randperm(len(b))]
            for start in range(0, len(a), size):
                yield a[start:start + size]
            for start in range(0, len(b), size):
                yield b[start:start + size]
    """,
    "other places of each": """
        real = real[torch.randperm(9)]
        fake = fake[torch.randperm(9)]
        pair = real[3:], fake[:3]
    """,
    "twice each, whatever that means": """
        x = x[torch.randperm(9)]
        x = x[torch.randperm(9)]
        y = y[torch.randperm(9)]
        data = TensorDataset(x, y)
    """,
}


def told(source: str, tmp_path: Path) -> dict[str, object] | None:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(source))
    return apart((str(path),))


@pytest.mark.parametrize("name", APART)
def test_two_orders_are_told(name: str, tmp_path: Path) -> None:
    found = told(APART[name], tmp_path)
    assert found is not None
    assert len(set(found["names"])) == 2  # type: ignore[call-overload]


@pytest.mark.parametrize("name", TOGETHER)
def test_one_order_is_left_alone(name: str, tmp_path: Path) -> None:
    assert told(TOGETHER[name], tmp_path) is None
