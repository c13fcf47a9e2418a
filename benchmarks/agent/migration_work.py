"""The program that bench_migration migrates; run in a container as `python3 -c SOURCE MEGABYTES [connect|hold|gpu]`.

Each step prints a value that depends on all previous steps. It appends its number to a file in the container, which
remains open, and to one on the volume. If a migration loses or changes anything, the output afterwards shows it.

- `connect`: the program also keeps a TCP connection open, with which a container cannot be checkpointed.
- `hold`: it keeps a file on the volume open, which would have grown by the time of the restore.
- `gpu`: value and ballast are in GPU memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import socket
import sys
import time
import zlib

BEGIN = b"begin".ljust(32)


class Host:
    """Value and ballast in the memory of the process."""

    def __init__(self, ballast: bytes) -> None:
        self.value, self.ballast = BEGIN, ballast

    def read(self) -> bytes:
        return self.value

    def write(self, value: bytes) -> None:
        self.value = value

    def checksum(self) -> int:
        return zlib.crc32(self.ballast)


class Gpu:
    """Value and ballast in one block of GPU memory, the value first.

    Every step reads the value from there.
    """

    def __init__(self, ballast: bytes) -> None:
        self.cuda = ctypes.CDLL("/var/lib/podium-fake-driver/lib/libcuda.so.1")
        device, context, self.block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.size = len(ballast)
        self.call("cuMemAlloc_v2", ctypes.byref(self.block), ctypes.c_size_t(32 + self.size))
        self.write(BEGIN)
        self.put(32, ballast)

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            sys.exit(f"{name}: CUDA error {code}")

    def put(self, offset: int, data: bytes) -> None:
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.block.value + offset), data, ctypes.c_size_t(len(data)))

    def get(self, offset: int, size: int) -> bytes:
        out = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", out, ctypes.c_uint64(self.block.value + offset), ctypes.c_size_t(size))
        return out.raw

    def read(self) -> bytes:
        return self.get(0, 32)

    def write(self, value: bytes) -> None:
        self.put(0, value)

    def checksum(self) -> int:
        return zlib.crc32(self.get(32, self.size))


def connection() -> tuple[socket.socket, ...]:
    """Return the sockets of a TCP connection of this process with itself; they close when unreferenced."""
    server = socket.create_server(("127.0.0.1", 7000))
    return server, socket.create_connection(("127.0.0.1", 7000)), server.accept()[0]


def main(megabytes: int, mode: str) -> None:
    """Count until the process ends."""
    memory: Host | Gpu = (Gpu if mode == "gpu" else Host)(os.urandom(1 << 20) * megabytes)
    _open = connection() if mode == "connect" else ()
    inside = open("/tmp/steps", "a")  # noqa: SIM115
    outside = open("/ckpt/held", "a") if mode == "hold" else None  # noqa: SIM115
    step = 0
    while True:
        step += 1
        value = hashlib.sha256(memory.read()).digest()
        memory.write(value)
        for file in (inside, outside):
            if file is not None:
                file.write(f"{step}\n")
                file.flush()
        with open("/ckpt/steps", "a") as steps:
            steps.write(f"{step}\n")
        sums = {"ballast": memory.checksum()} if step % 20 == 1 else {}
        print(json.dumps({"step": step, "value": value.hex()[:16], "host": socket.gethostname(), **sums}), flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
