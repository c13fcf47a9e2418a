"""The program that `bench_moving.py` moves; run in a container as `python3 -c SOURCE MEGABYTES [connect|hold]`.

Each step prints a value that depends on all steps before it, and appends its number to a file in the container, which
stays open, and to one on the volume. A move that lost or changed anything shows in what it prints afterwards.
`connect`: it also keeps a TCP connection open, with which no container can be checkpointed. `hold`: it keeps a file on
the volume open, which would have grown by the time it is brought back.
"""

import hashlib
import json
import os
import socket
import sys
import time
import zlib

megabytes, habit = int(sys.argv[1]), sys.argv[2]
ballast = bytearray(os.urandom(1 << 20) * megabytes)
connection = []
if habit == "connect":
    server = socket.create_server(("127.0.0.1", 7000))
    connection = [server, socket.create_connection(("127.0.0.1", 7000)), server.accept()]
inside = open("/tmp/steps", "a")  # noqa: SIM115
outside = open("/ckpt/held", "a") if habit == "hold" else None  # noqa: SIM115
value, step = b"begin", 0
while True:
    step += 1
    value = hashlib.sha256(value).digest()
    for file in (inside, outside):
        if file is not None:
            file.write(f"{step}\n")
            file.flush()
    with open("/ckpt/steps", "a") as saved:
        saved.write(f"{step}\n")
    sums = {"ballast": zlib.crc32(ballast)} if step % 20 == 1 else {}
    print(json.dumps({"step": step, "value": value.hex()[:16], "host": socket.gethostname(), **sums}), flush=True)
    time.sleep(0.1)
