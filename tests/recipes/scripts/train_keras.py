"""A small regression by Keras on jax, with momentum and rows in fixed order."""

import os
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from podium_keras import PodiumCallback, trial


def build():
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    return model


x = np.random.default_rng(3).standard_normal((96, 4), dtype=np.float32)
y = x.sum(axis=1) ** 2
saved = trial.load()
model = keras.models.load_model(saved.path / "model.keras") if saved else build()
pause = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(0.1))
model.fit(
    x,
    y,
    batch_size=8,
    epochs=20,
    initial_epoch=saved.step if saved else 0,
    shuffle=False,
    verbose=0,
    callbacks=[PodiumCallback(every=3), pause],
)
if trial.stopping():
    sys.exit(trial.STOPPED)
