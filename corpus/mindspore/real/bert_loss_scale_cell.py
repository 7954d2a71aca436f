"""A tiny BERT as in the model zoo: a TrainOneStepWithLossScaleCell of its own with HyperMap and clipping, parameter groups, a rate schedule cell."""

from fingerprint import report
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, amp, nn, ops
from mindspore.nn.learning_rate_schedule import LearningRateSchedule, PolynomialDecayLR, WarmUpLR

VOCABULARY, LENGTH, WIDTH = 30, 12, 16
grad_scale = ops.MultitypeFuncGraph("grad_scale")
reciprocal = ops.Reciprocal()


@grad_scale.register("Tensor", "Tensor")
def tensor_grad_scale(scale, grad):
    return grad * reciprocal(scale)


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value = nn.Dense(width, width), nn.Dense(width, width), nn.Dense(width, width)
        self.out = nn.Dense(width, width)
        self.softmax = nn.Softmax(-1)
        self.dropout = nn.Identity()

    def split(self, x):
        return x.reshape(x.shape[0], -1, self.heads, self.size).transpose(0, 2, 1, 3)

    def construct(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = ops.matmul(q, k.swapaxes(-1, -2)) / self.size**0.5
        scores = scores + (1.0 - mask.expand_dims(1).expand_dims(1)) * -10000.0
        context = ops.matmul(self.dropout(self.softmax(scores)), v)
        return self.out(context.transpose(0, 2, 1, 3).reshape(x.shape))


class Layer(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.attention = Attention(width, 2)
        self.layernorm1, self.layernorm2 = nn.LayerNorm([width]), nn.LayerNorm([width])
        self.intermediate, self.output = nn.Dense(width, 2 * width, activation="gelu"), nn.Dense(2 * width, width)

    def construct(self, x, mask):
        x = self.layernorm1(x + self.attention(x, mask))
        return self.layernorm2(x + self.output(self.intermediate(x)))


class BertMLM(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.CellList([Layer(WIDTH) for _ in range(2)])
        self.head = nn.Dense(WIDTH, VOCABULARY)
        self.places = Tensor(np.arange(LENGTH), ms.int32)

    def construct(self, ids, mask, positions, labels):
        x = self.embedding(ids) + self.position(self.places)
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.head(x).reshape(-1, VOCABULARY)
        weights = positions.reshape(-1)
        per_token = ops.cross_entropy(logits, labels.reshape(-1), reduction="none")
        return (per_token * weights).sum() / (weights.sum() + 1e-5)


class BertLearningRate(LearningRateSchedule):
    def __init__(self, rate, end, warmup, decay):
        super().__init__()
        self.warmup, self.is_warmup = warmup, WarmUpLR(rate, warmup)
        self.decay = PolynomialDecayLR(rate, end, decay, 1.0)

    def construct(self, global_step):
        return ops.select(global_step < self.warmup, self.is_warmup(global_step), self.decay(global_step))


class BertTrainCell(nn.TrainOneStepWithLossScaleCell):
    def __init__(self, network, optimizer, scale_sense):
        super().__init__(network, optimizer, scale_sense)
        self.hyper_map = ops.HyperMap()

    def construct(self, ids, mask, positions, labels):
        loss = self.network(ids, mask, positions, labels)
        scaling_sens = self.scale_sense
        sens = ops.ones_like(loss) * ops.cast(scaling_sens, loss.dtype)
        grads = self.grad(self.network, self.weights)(ids, mask, positions, labels, sens)
        grads = self.hyper_map(ops.partial(grad_scale, scaling_sens), grads)
        grads = ops.clip_by_global_norm(grads, 1.0)
        overflow = self.process_loss_scale(ops.logical_not(amp.all_finite(grads)))
        if not overflow:
            self.optimizer(grads)
        return loss, overflow, scaling_sens


def samples(count):
    for _ in range(count):
        first = np.random.randint(3, VOCABULARY)
        ids = (first + np.arange(LENGTH)) % (VOCABULARY - 3) + 3
        labels, length = ids.astype(np.int32).copy(), np.random.randint(8, LENGTH + 1)
        mask = (np.arange(LENGTH) < length).astype(np.float32)
        positions = (np.random.rand(LENGTH) < 0.25).astype(np.float32) * mask
        ids = np.where(positions > 0, 1, ids * mask.astype(np.int64)).astype(np.int32)
        yield ids, mask, positions, labels


network = BertMLM()
decayed = [p for p in network.trainable_params() if "layernorm" not in p.name and "bias" not in p.name]
others = [p for p in network.trainable_params() if "layernorm" in p.name or "bias" in p.name]
groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}, {"order_params": network.trainable_params()}]
optimizer = nn.AdamWeightDecay(groups, BertLearningRate(5e-3, 1e-5, 5, 60), eps=1e-6)
scaler = nn.DynamicLossScaleUpdateCell(loss_scale_value=2**10, scale_factor=2, scale_window=20)
train_cell = BertTrainCell(network, optimizer, scaler)
train_cell.set_train()
dataset = ds.GeneratorDataset(list(samples(128)), ["ids", "mask", "positions", "labels"], shuffle=True).batch(16)
for epoch in range(2):
    for batch in dataset.create_tuple_iterator():
        loss, overflow, scale = train_cell(*batch)
    print(f"epoch {epoch} loss {float(loss):.6f} overflow {bool(overflow)} scale {float(scale)}")
report(network, optimizer)
