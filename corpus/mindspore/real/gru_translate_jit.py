"""A GRU encoder and decoder that turns digits around: teacher forcing, the step under ms.jit, greedy decoding for evaluation."""

from fingerprint import report
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

DIGITS, LENGTH, WIDTH, START = 8, 5, 32, 8


class Seq2Seq(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(DIGITS + 1, 16)
        self.encoder = nn.GRU(16, WIDTH, batch_first=True)
        self.decoder = nn.GRU(16, WIDTH, batch_first=True)
        self.out = nn.Dense(WIDTH, DIGITS)

    def construct(self, source, given):
        _, state = self.encoder(self.embed(source))
        hidden, _ = self.decoder(self.embed(given), state)
        return self.out(hidden)


def batch(size):
    source = np.random.randint(0, DIGITS, (size, LENGTH))
    target = source[:, ::-1].copy()
    given = np.concatenate([np.full((size, 1), START), target[:, :-1]], 1)
    return Tensor(source, ms.int32), Tensor(given, ms.int32), Tensor(target, ms.int32)


net = Seq2Seq()
opt = nn.Adam(net.trainable_params(), nn.ExponentialDecayLR(1e-2, 0.9, 30))


def forward(source, given, target):
    logits = net(source, given)
    return ops.cross_entropy(logits.reshape(-1, DIGITS), target.reshape(-1))


grad_fn = ms.value_and_grad(forward, None, opt.parameters)


@ms.jit
def train_step(source, given, target):
    loss, grads = grad_fn(source, given, target)
    grads = ops.clip_by_global_norm(grads, 5.0)
    opt(grads)
    return loss


net.set_train()
for step in range(60):
    loss = train_step(*batch(32))
    if step % 20 == 0:
        print(f"step {step} loss {float(loss):.6f}")
net.set_train(False)
source, _, target = batch(16)
given = np.full((16, 1), START)
for place in range(LENGTH):
    logits = net(source, Tensor(given, ms.int32))
    given = np.concatenate([given, logits[:, -1].argmax(-1).asnumpy()[:, None]], 1)
print("right", (given[:, 1:] == target.asnumpy()).mean())
report(net, opt)
