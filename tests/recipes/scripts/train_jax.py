"""A small regression in Flax NNX with dropout, AdamW by Optax, and rows in an order that a key draws."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from podium_jax import restore, save, trial


class Line(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(4, 8, rngs=rngs, param_dtype=jnp.bfloat16)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)
        self.outer = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.outer(self.dropout(nnx.tanh(self.inner(x))))[:, 0]


@nnx.jit
def train_epoch(model, optimizer, x, y):
    def loss_of(model):
        return ((model(x) - y) ** 2).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


x = np.random.default_rng(3).standard_normal((96, 4), dtype=np.float32)
y = x.sum(axis=1) ** 2
model = Line(nnx.Rngs(3))
optimizer = nnx.Optimizer(model, optax.adamw(optax.cosine_decay_schedule(0.02, 40)), wrt=nnx.Param)
start = {"nnx": nnx.state((model, optimizer)), "key": jax.random.key(5), "rows": 0}
state, done = restore(start)
nnx.update((model, optimizer), state["nnx"])
key, rows = state["key"], state["rows"]
for epoch in range(done + 1, 41):
    key, order = jax.random.split(key)
    batch = jax.random.permutation(order, 96)[:64]
    rows += 64
    loss = train_epoch(model, optimizer, x[batch], y[batch])
    trial.report(step=epoch, loss=loss, rows=rows)
    time.sleep(0.05)
    if trial.should_save() or epoch % 10 == 0:
        save(epoch, {"nnx": nnx.state((model, optimizer)), "key": key, "rows": rows})
    if trial.stopping():
        sys.exit(trial.STOPPED)
