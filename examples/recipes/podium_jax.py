"""JAX, with Flax, Optax or any other library: saves and resumes a pytree of arrays.

    from podium_jax import restore, save, trial
    state = {"params": params, "optimizer": optimizer.init(params), "key": jax.random.key(0)}
    state, done = restore(state)
    for epoch in range(done + 1, EPOCHS + 1):
        state, loss = train_epoch(state)
        trial.report(step=epoch, loss=loss)
        if trial.should_save() or epoch % 5 == 0:
            save(epoch, state)
        if trial.stopping():
            sys.exit(trial.STOPPED)

The state holds all that changes: parameters, the optimizer's state, random keys, and counters of the data loader. With
Flax NNX it is `nnx.state((model, optimizer))`, which includes the keys of its `Rngs`; after `restore`, write it back by
`nnx.update((model, optimizer), state)`. The file is NumPy's and holds arrays only, so it cannot execute code. On a GPU,
set XLA_FLAGS=--xla_gpu_deterministic_ops=true for equal numbers, and XLA_PYTHON_CLIENT_PREALLOCATE=false, because JAX
otherwise takes three quarters of the GPU's memory at its start.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
from podium import trial

State = TypeVar("State")
FILE = "state.npz"

trial.stopping()  # handles SIGTERM from here on


def save(step: int, state: object) -> None:
    """Save the state after this step."""
    trial.save(step, lambda folder: _write(folder / FILE, state))


def restore(state: State) -> tuple[State, int]:
    """Return the saved state and its step; without a checkpoint, this state and 0.

    `state` gives the structure, the types and the devices. Raises ValueError if the saved one has another shape.
    """
    saved = trial.load()
    if saved is None:
        return state, 0
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    with np.load(saved.path / FILE, allow_pickle=False) as file:
        if len(file.files) != len(leaves):
            raise ValueError(
                f"{saved.path} has {len(file.files)} arrays and the state {len(leaves)}: the model changed"
            )
        values = [_restored(name, leaf, file[f"{number}"]) for number, (name, leaf) in enumerate(leaves)]
    return jax.tree_util.tree_unflatten(structure, values), int(saved.step)


def _write(path: Path, state: object) -> None:
    arrays: dict[str, Any] = {}
    for number, (name, leaf) in enumerate(jax.tree_util.tree_flatten_with_path(state)[0]):
        array = _numbers(leaf)
        if array.dtype == object:
            raise TypeError(
                f"state{jax.tree_util.keystr(name)} is a {type(leaf).__name__}: keep arrays and numbers only"
            )
        # NumPy's files have no bfloat16 and no 8-bit floats: their bytes are written
        arrays[f"{number}"] = array.reshape(-1).view(np.uint8) if array.dtype.kind == "V" else array
    np.savez(path, **arrays)


def _numbers(leaf: Any) -> np.ndarray:
    """Return a leaf as an array; of a random key, its words."""
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _restored(name: Any, leaf: Any, value: np.ndarray) -> Any:
    """Return the saved value as the kind of leaf that the state has there."""
    template = _numbers(leaf)
    if template.dtype.kind == "V" and value.nbytes == template.nbytes:
        value = value.view(template.dtype).reshape(template.shape)
    if (value.shape, value.dtype) != (template.shape, template.dtype):
        shown = jax.tree_util.keystr(name)
        raise ValueError(
            f"state{shown} was saved as {value.dtype}{list(value.shape)} and is {template.dtype}{list(template.shape)} "
            "now: keep parameters that change it fixed"
        )
    if _is_key(leaf):
        value = jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf))
    if isinstance(leaf, jax.Array):
        return jax.device_put(value, leaf.sharding)
    return value if isinstance(leaf, np.ndarray) else type(leaf)(value.item())
