"""An LSTM classifier over padded sequences, with an embedding and TrainOneStepCell."""

from fingerprint import report
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn, ops

VOCABULARY, LENGTH = 40, 12


class RNN(nn.Cell):
    def __init__(self, hidden=24):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16, padding_idx=0)
        self.rnn = nn.LSTM(16, hidden, num_layers=1, bidirectional=True, batch_first=True)
        self.fc = nn.Dense(2 * hidden, 2)

    def construct(self, inputs):
        embedded = self.embedding(inputs)
        _, (hidden, _) = self.rnn(embedded)
        hidden = ops.concat((hidden[-2, :, :], hidden[-1, :, :]), axis=1)
        return self.fc(hidden)


class WithLoss(nn.Cell):
    def __init__(self, backbone, loss_fn):
        super().__init__(auto_prefix=False)
        self._backbone, self._loss_fn = backbone, loss_fn

    def construct(self, text, label):
        return self._loss_fn(self._backbone(text), label)


rng = np.random.RandomState(5)
text = rng.randint(1, VOCABULARY, (160, LENGTH)).astype(np.int32)
for row, used in zip(text, rng.randint(6, LENGTH + 1, 160)):
    row[used:] = 0
label = ((text > 0) * (text < 20)).sum(1) > ((text >= 20).sum(1))

net = RNN()
optimizer = nn.Adam(net.trainable_params(), learning_rate=0.01)
train_net = nn.TrainOneStepCell(WithLoss(net, nn.CrossEntropyLoss()), optimizer)
train_net.set_train()
for epoch in range(5):
    total = 0.0
    for at in range(0, 160, 32):
        loss = train_net(Tensor(text[at : at + 32]), Tensor(label[at : at + 32].astype(np.int32)))
        total += loss.asnumpy()
    print(f"epoch {epoch} loss {total / 5:.6f}")
net.set_train(False)
print("right", int((net(Tensor(text)).asnumpy().argmax(1) == label).sum()))
report(net, optimizer)
