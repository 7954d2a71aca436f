import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(32)
rng = np.random.default_rng(32)
ids = rng.integers(1, 50, (256, 14)).astype(np.int32)
length = rng.integers(3, 15, 256).astype(np.int32)
for n in range(256):
    ids[n, length[n] :] = 0
label = np.array([(row[row > 0] > 25).mean() > 0.5 for row in ids]).astype(np.float32)


class Sentiment(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 20, padding_idx=0)
        self.rnn = nn.LSTM(20, 24, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(p=0.3)
        self.fc = nn.Dense(48, 1)

    def construct(self, ids, length):
        out, _ = self.rnn(self.dropout(self.embedding(ids)), seq_length=length)
        mask = (ids != 0).astype(ms.float32).expand_dims(-1)
        pooled = (out * mask).sum(1) / mask.sum(1)
        return self.fc(pooled).squeeze(-1)


net = Sentiment()
loss_fn = nn.BCEWithLogitsLoss()
optimizer = nn.Adam(net.trainable_params(), 5e-3)


def forward(ids, length, y):
    logits = net(ids, length)
    return loss_fn(logits, y), logits


grad_fn = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
for epoch in range(3):
    net.set_train()
    right = 0
    for i in range(0, 256, 32):
        (loss, logits), grads = grad_fn(Tensor(ids[i : i + 32]), Tensor(length[i : i + 32]), Tensor(label[i : i + 32]))
        grads = ops.clip_by_global_norm(grads, 5.0)
        optimizer(grads)
        right += int(((logits.asnumpy() > 0) == label[i : i + 32]).sum())
    net.set_train(False)
    held = net(Tensor(ids[:32]), Tensor(length[:32]))
    print(epoch, float(loss), right / 256, float(held.mean()))
