"""Worker process of the CPU back-end: one stream of one partition.

`runtime.cpu` starts it as `python -m podium_realtime.runtime.worker` and sends requests over an inherited socket. The
worker pins itself to the cores of its partition, builds and warms every network, and runs stages on activations in
shared memory until the socket closes. Any worker can thus run any stage without set-up or copies.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

REQUEST = struct.Struct("<III")  # number of the batch, task, stage
REPLY = struct.Struct("<Idd")  # number of the batch, start and finish time
WHOLE_NETWORK = 0xFFFFFFFF  # as the stage of a request: run all stages
WARM_UPS = 3


def main() -> None:
    """Serve requests until the socket closes."""
    config: dict[str, Any] = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the session, which closes the socket
    os.sched_setaffinity(0, config["cores"])
    os.nice(config["nice"])
    # numpy is imported after pinning, because its BLAS library counts the cores and starts its threads on import
    from podium_realtime.runtime.activations import Activations
    from podium_realtime.runtime.convnet import ConvNet, ConvNetSpec

    nets = {name: ConvNet(ConvNetSpec(**spec)) for name, spec in config["networks"].items()}
    activations = [Activations.attach(memory, nets[network]) for memory, network in config["activations"]]
    for net in nets.values():
        private = Activations.private(net)
        for _ in range(WARM_UPS):
            private.run_network()
    connection = Connection(config["socket"])
    connection.send_bytes(b"ready")
    clock = time.perf_counter
    while True:
        try:
            number, task, stage = REQUEST.unpack(connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            break
        started = clock()
        if stage == WHOLE_NETWORK:
            activations[task].run_network()
        else:
            activations[task].run(stage)
        try:
            connection.send_bytes(REPLY.pack(number, started, clock()))
        except (BrokenPipeError, ConnectionResetError):
            break
    for task_activations in activations:
        task_activations.close()


if __name__ == "__main__":
    main()
