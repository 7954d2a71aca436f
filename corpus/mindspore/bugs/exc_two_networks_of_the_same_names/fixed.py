"""An autoencoder of two networks with one optimizer."""
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_seed(71)
rng = np.random.RandomState(71)
basis = rng.randn(4, 20)


def mlp(*sizes):
    layers = []
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Dense(before, after), nn.Tanh()]
    return nn.SequentialCell(layers[:-1])


encoder = mlp(20, 16, 4)
decoder = mlp(4, 16, 20)
encoder.update_parameters_name("encoder.")
decoder.update_parameters_name("decoder.")
optimizer = nn.Adam(encoder.trainable_params() + decoder.trainable_params(), 5e-3)


def forward(x):
    return ops.mse_loss(decoder(encoder(x)), x)


step = ms.value_and_grad(forward, None, optimizer.parameters)
for k in range(120):
    x = np.tanh(rng.randn(64, 4) @ basis).astype(np.float32)
    loss, grads = step(Tensor(x))
    optimizer(grads)
    if k % 30 == 0:
        print(k, f"{float(loss):.4f}")
