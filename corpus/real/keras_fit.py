"""Keras on torch: its own optimizer, layers that are first called with tensors without values, and a validation split."""

# needs: keras
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
import torch
from fingerprint import report

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
x = rng.normal(size=(600, 8, 8, 1)).astype("float32")
y = (x[:, :4].mean((1, 2, 3)) > x[:, 4:].mean((1, 2, 3))).astype("int64")
layers = keras.layers
model = keras.Sequential(
    [
        layers.Conv2D(8, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.Flatten(),
        layers.Dropout(0.1),
        layers.Dense(2),
    ]
)
model.compile(
    optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)
history = model.fit(x, y, batch_size=32, epochs=4, validation_split=0.2, verbose=0).history
print([f"{loss:.6f}" for loss in history["loss"]], history["val_accuracy"][-1])
report({name: torch.as_tensor(value) for name, value in enumerate(model.get_weights())})
