"""Sentiment of short reviews: a vocabulary built from the training texts, padded batches, a packed LSTM with dropout, early stopping on validation."""
import copy
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

GOOD = "great lovely superb warm clever funny bright charming".split()
BAD = "awful dull boring cold stupid noisy weak ugly".split()
PLAIN = "the a film plot actor scene was and with some music story very end screen".split()
NEGATIONS = ["not", "never", "hardly"]


def write_review():
    """Words and whether the reviewer liked it; a negation turns the word that follows it."""
    liked = random.random() < 0.5
    words = [random.choice(PLAIN) for _ in range(random.randint(3, 14))]
    for _ in range(random.randint(1, 3)):
        turned = random.random() < 0.4
        word = random.choice(GOOD if liked != turned else BAD)
        at = random.randint(0, len(words))
        words[at:at] = [random.choice(NEGATIONS), word] if turned else [word]
    return " ".join(words), int(liked)


def build_vocabulary(texts):
    vocabulary = {"<pad>": 0, "<unk>": 1}
    for text in texts:
        for word in text.split():
            vocabulary.setdefault(word, len(vocabulary))
    return vocabulary


class Reviews(Dataset):
    def __init__(self, samples, vocabulary):
        self.samples = samples
        self.vocabulary = vocabulary

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        text, label = self.samples[index]
        ids = [self.vocabulary.get(word, 1) for word in text.split()]
        return torch.tensor(ids), label


def collate(batch):
    lengths = torch.tensor([len(ids) for ids, _ in batch])
    padded = pad_sequence([ids for ids, _ in batch], batch_first=True, padding_value=0)
    labels = torch.tensor([label for _, label in batch], dtype=torch.float32)
    return padded, lengths, labels


class Classifier(nn.Module):
    def __init__(self, words, embed=24, hidden=32):
        super().__init__()
        self.embedding = nn.Embedding(words, embed, padding_idx=0)
        self.lstm = nn.LSTM(embed, hidden, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(2 * hidden, 1)

    def forward(self, ids, lengths):
        embedded = self.dropout(self.embedding(ids))
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        _, (hidden, _) = self.lstm(packed)
        last = torch.cat([hidden[-2], hidden[-1]], dim=1)
        return self.out(self.dropout(last)).squeeze(1)


def evaluate(model, loader, criterion):
    model.eval()
    loss, right, seen = 0.0, 0, 0
    with torch.no_grad():
        for ids, lengths, labels in loader:
            logits = model(ids, lengths)
            loss += criterion(logits, labels).item() * len(labels)
            right += ((logits > 0).float() == labels).sum().item()
            seen += len(labels)
    return loss / seen, right / seen


def main():
    random.seed(5)
    torch.manual_seed(5)
    samples = [write_review() for _ in range(1600)]
    train, valid, test = samples[:1200], samples[1200:1400], samples[1400:]
    vocabulary = build_vocabulary(text for text, _ in train)
    loaders = {
        name: DataLoader(Reviews(part, vocabulary), batch_size=32, shuffle=name == "train", collate_fn=collate)
        for name, part in [("train", train), ("valid", valid), ("test", test)]
    }
    model = Classifier(len(vocabulary))
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    best_loss, best_state, patience = float("inf"), None, 0
    for epoch in range(9):
        model.train()
        for ids, lengths, labels in loaders["train"]:
            optimizer.zero_grad()
            loss = criterion(model(ids, lengths), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        valid_loss, valid_accuracy = evaluate(model, loaders["valid"], criterion)
        print(f"epoch {epoch}: valid loss {valid_loss:.3f} accuracy {valid_accuracy:.3f}")
        if valid_loss < best_loss:
            best_loss, best_state, patience = valid_loss, copy.deepcopy(model.state_dict()), 0
        else:
            patience += 1
            if patience >= 3:
                break
    model.load_state_dict(best_state)
    test_loss, test_accuracy = evaluate(model, loaders["test"], criterion)
    print(f"final accuracy: {test_accuracy:.4f}")


if __name__ == "__main__":
    main()
