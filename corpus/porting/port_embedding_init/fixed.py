import numpy as np
import mindspore as ms
from mindspore import Tensor, nn, ops


def reviews():
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 200)
    words = rng.integers(0, 40, (200, 9))
    words[labels == 1, 4] = 41
    return words, labels


class Sentiment(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(48, 16, embedding_table=ms.common.initializer.Normal(1.0))
        self.encoder = nn.LSTM(16, 12, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(p=0.1)
        self.classify = nn.Dense(24, 2)

    def construct(self, words):
        states, _ = self.encoder(self.embedding(words))
        return self.classify(self.dropout(states.max(axis=1)))


ms.set_seed(0)
net = Sentiment()
optimizer = nn.Adam(net.trainable_params(), learning_rate=5e-3)
net.set_train()
loss_fn = nn.CrossEntropyLoss()


def forward(x, y):
    return loss_fn(net(x), y)


step = ms.value_and_grad(forward, None, optimizer.parameters)
words, labels = reviews()
for epoch in range(3):
    order = np.random.permutation(len(words))
    for begin in range(0, len(words), 40):
        chosen = order[begin : begin + 40]
        loss, grads = step(Tensor(words[chosen].astype(np.int32)), Tensor(labels[chosen].astype(np.int32)))
        optimizer(grads)
    print(f"epoch {epoch} loss {float(loss.asnumpy()):.4f}")
