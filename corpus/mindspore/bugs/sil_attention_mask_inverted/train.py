"""A character model of nn.TransformerEncoder with a causal mask."""
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_seed(91)
rng = np.random.RandomState(91)
text = "the cat sat on the mat and the dog lay on the rug while the cat slept. " * 20
letters = sorted(set(text))
tokens = np.array([letters.index(c) for c in text], np.int32)
LENGTH, WIDTH = 16, 32


class CharModel(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(letters), WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.out = nn.Dense(WIDTH, len(letters))
        self.mask = Tensor(np.tril(np.ones((LENGTH, LENGTH))), ms.bool_)
        self.places = Tensor(np.arange(LENGTH), ms.int32)

    def construct(self, x):
        h = self.embed(x) + self.position(self.places)
        return self.out(self.encoder(h, self.mask))


net = CharModel()
optimizer = nn.AdamWeightDecay(net.trainable_params(), 2e-3, weight_decay=0.01)


def forward(x, y):
    logits = net(x)
    return ops.cross_entropy(logits.reshape(-1, len(letters)), y.reshape(-1))


grad_fn = ms.value_and_grad(forward, None, optimizer.parameters)
net.set_train()
for step in range(40):
    start = rng.randint(0, len(tokens) - LENGTH - 1, 16)
    x = np.stack([tokens[s : s + LENGTH] for s in start])
    y = np.stack([tokens[s + 1 : s + LENGTH + 1] for s in start])
    loss, grads = grad_fn(Tensor(x), Tensor(y))
    optimizer(grads)
    if step % 10 == 0:
        print(step, f"{float(loss):.4f}")
