"""Train a small network on several nodes: one process on each, which average their gradients in a ring of sockets.

It needs only numpy, so that it shows what Podium gives to the workers of a trial: RANK, WORLD_SIZE, and the name of
each worker. Sums have one order, so every run with the same parameters prints the same digits, whether it is suspended
or not. Worker 0 prints and saves. `train.py --local 2` runs two workers on this machine.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # one thread, so that sums have one order
sys.path.append(os.environ.get("PODIUM_PYTHON") or str(Path(__file__).resolve().parent.parent.parent / "sdk"))

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from podium import trial  # noqa: E402

Array = NDArray[np.float64]
INPUTS, HIDDEN, SAMPLES, BATCHES = 16, 24, 512, 8
PATIENCE = 600.0  # seconds in which the other workers must have started
FIRST_PORT = int(os.environ.get("MASTER_PORT", "29500"))


@dataclass(frozen=True)
class Ring:
    """Connections to the next and from the previous worker.

    They have no time limit: a suspended worker answers later.
    """

    rank: int
    size: int
    following: socket.socket | None
    previous: socket.socket | None

    def send(self, data: bytes) -> None:
        assert self.following is not None
        self.following.sendall(struct.pack("!q", len(data)) + data)

    def receive(self) -> bytes:
        (length,) = struct.unpack("!q", self._exactly(8))
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        assert self.previous is not None
        data = bytearray()
        while len(data) < length:
            part = self.previous.recv(length - len(data))
            if not part:
                raise ConnectionError("the previous worker has ended")
            data += part
        return bytes(data)

    def broadcast(self, data: bytes) -> bytes:
        """Return worker 0's data on every worker."""
        if self.size == 1:
            return data
        if self.rank == 0:
            self.send(data)
            return self.receive()
        data = self.receive()
        self.send(data)
        return data

    def sum(self, values: Array) -> Array:
        """Return the sum over all workers.

        Each part travels round the ring twice: reduce-scatter, then all-gather.
        """
        parts = np.array_split(values, self.size)
        for turn in range(self.size - 1):
            self.send(parts[(self.rank - turn) % self.size].tobytes())
            index = (self.rank - turn - 1) % self.size
            parts[index] = parts[index] + np.frombuffer(self.receive())
        for turn in range(self.size - 1):
            self.send(parts[(self.rank - turn + 1) % self.size].tobytes())
            parts[(self.rank - turn) % self.size] = np.frombuffer(self.receive())
        return np.concatenate(parts)


def name_of(worker: int) -> str:
    """Return the host name of a worker.

    It is that of worker 0 with another number at the end, in Podium's own pods and in those of a Job.
    """
    host, _, domain = os.environ["MASTER_ADDR"].partition(".")
    return f"{host.removesuffix('-0')}-{worker}.{domain}"


def connect(rank: int, size: int) -> Ring:
    """Join the ring. A name resolves, and a port is open, once that worker has started."""
    if size == 1:
        return Ring(rank, size, None, None)
    local = "PODIUM_WORKERS" not in os.environ
    server = socket.create_server(("", FIRST_PORT + rank if local else FIRST_PORT))
    other = (rank + 1) % size
    address = ("127.0.0.1", FIRST_PORT + other) if local else (name_of(other), FIRST_PORT)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            following = socket.create_connection(address, timeout=5.0)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    following.settimeout(None)
    following.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    previous, _ = server.accept()
    return Ring(rank, size, following, previous)


def data(seed: int) -> tuple[Array, Array]:
    """Return inputs, and the outputs of a network that the training has to find."""
    random = np.random.default_rng(seed)
    inputs = random.standard_normal((SAMPLES, INPUTS))
    hidden = np.tanh(inputs @ random.standard_normal((INPUTS, HIDDEN)))
    return inputs, hidden @ random.standard_normal((HIDDEN, 1))


def gradient(weights: Array, inputs: Array, wanted: Array) -> Array:
    """Return the gradient of the squared error, and then the error.

    Both are sums over the samples.
    """
    first, second = weights[: INPUTS * HIDDEN].reshape(INPUTS, HIDDEN), weights[INPUTS * HIDDEN :].reshape(HIDDEN, 1)
    hidden = np.tanh(inputs @ first)
    error = hidden @ second - wanted
    back = (error @ second.T) * (1.0 - hidden * hidden)
    return np.concatenate([(inputs.T @ back).ravel(), (hidden.T @ error).ravel(), [float((error * error).sum())]])


def save(weights: Array, velocity: Array, epoch: int) -> None:
    def write(folder: Path) -> None:
        np.save(folder / "state.npy", np.stack([weights, velocity]))

    trial.save(epoch, write)


def load(ring: Ring, seed: int) -> tuple[Array, Array, int]:
    """Return weights, velocity and epoch of worker 0 on every worker.

    The others may be unable to read the checkpoint.
    """
    packed = io.BytesIO()
    if ring.rank == 0:
        saved = trial.load()
        state = np.random.default_rng(seed + 1).standard_normal((2, INPUTS * HIDDEN + HIDDEN)) * [[0.1], [0.0]]
        if saved is not None:
            state = np.load(saved.path / "state.npy")
        np.savez(packed, state=state, epoch=0 if saved is None else int(saved.step))
    found = np.load(io.BytesIO(ring.broadcast(packed.getvalue())))
    weights, velocity = found["state"]
    return weights, velocity, int(found["epoch"])


def train(ring: Ring, options: argparse.Namespace) -> int:
    inputs, wanted = data(options.seed)
    weights, velocity, epoch = load(ring, options.seed)
    while epoch < options.epochs:
        time.sleep(options.pause)
        total = 0.0
        for batch in range(BATCHES):
            # each worker takes its share of the batch
            mine = slice(batch * ring.size + ring.rank, None, BATCHES * ring.size)
            summed = ring.sum(gradient(weights, inputs[mine], wanted[mine]))
            total += summed[-1]
            velocity = options.momentum * velocity + summed[:-1] * (BATCHES / SAMPLES)
            weights = weights - options.lr * velocity
        epoch += 1
        if ring.rank == 0:
            print(json.dumps({"epoch": epoch, "loss": total / SAMPLES}), flush=True)  # with all digits
        # all workers must take the same decision: a pod may be asked to save, or to stop, before the others are
        asked = ring.sum(np.array([float(trial.should_save()), float(trial.stopping())]))
        if asked[0] or epoch % options.save_every == 0:
            save(weights, velocity, epoch)
        if asked[1]:
            return trial.STOPPED
    return 0


def run_local(workers: int) -> int:
    """Run all workers on this machine.

    SIGTERM must reach them, too, as Ctrl-C does: send it to the process group.
    """
    signal.signal(signal.SIGTERM, lambda *_: None)
    command = [sys.executable, __file__, *(word for word in sys.argv[1:])]
    started = [
        subprocess.Popen(command, env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(workers)})
        for rank in range(workers)
    ]
    return max(process.wait() for process in started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=1, help="epochs between two checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of each epoch in which nothing happens")
    parser.add_argument("--local", type=int, help="run this number of workers on this machine")
    options = parser.parse_args()
    if options.local and "RANK" not in os.environ:
        return run_local(options.local)
    trial.stopping()  # from here on SIGTERM asks for a checkpoint
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    return train(connect(rank, size), options)


if __name__ == "__main__":
    sys.exit(main())
