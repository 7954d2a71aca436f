import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(30, 16), nn.GRU(16, 16, batch_first=True)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(16, 2)

    def forward(self, ids, labels=None):
        _, state = self.body(self.embed(ids))
        logits = self.head(self.drop(state[-1]))
        return {"logits": logits, "loss": F.cross_entropy(logits, labels) if labels is not None else None}


class Trainer:
    def __init__(self, model, data, accumulate=2, epochs=4):
        self.model, self.data, self.accumulate, self.epochs = model, data, accumulate, epochs

    def create_optimizer_and_scheduler(self, steps):
        decay = [p for p in self.model.parameters() if p.ndim > 1]
        plain = [p for p in self.model.parameters() if p.ndim <= 1]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=5e-3)
        warm = max(1, steps // 10)
        rate = lambda k: k / warm if k < warm else max(0.0, (steps - k) / (steps - warm))
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, rate)

    def train(self):
        self.create_optimizer_and_scheduler(self.epochs * len(self.data) // self.accumulate)
        for epoch in range(self.epochs):
            self.model.train()
            for k, (ids, labels) in enumerate(self.data):
                loss = self.model(ids, labels)["loss"] / self.accumulate
                loss.backward()
                if (k + 1) % self.accumulate == 0:
                    nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.optimizer.step()
                    self.scheduler.step()
                    self.model.zero_grad()
            print(epoch, self.evaluate())

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right = sum((self.model(ids)["logits"].argmax(1) == labels).sum().item() for ids, labels in self.data)
        return right / sum(len(labels) for _, labels in self.data)


ids = torch.randint(0, 30, (320, 6))
labels = (ids[:, -1] < 15).long()
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ids, labels), batch_size=16, shuffle=True)
Trainer(Classifier(), data).train()
