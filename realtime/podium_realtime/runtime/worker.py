"""The program of one worker: one stream of one partition. `python -m podium_realtime.runtime.worker` with its orders on
an inherited socket; started by `runtime.cpu`, never by hand.

It pins itself to its partition's cores, builds and warms every network once, and then computes stages on arenas in
shared memory until the socket closes. So a stage can go to any worker at any time: nothing is set up, nothing copied.
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

ORDER = struct.Struct("<III")  # number of the work, task, stage
DONE = struct.Struct("<Idd")  # number of the work, began, ended
WHOLE = 0xFFFFFFFF  # as a stage: all of them, for schedulers that know no stages
WARM_UPS = 3


def main() -> None:
    plan: dict[str, Any] = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the session; its end closes the socket
    os.sched_setaffinity(0, plan["cores"])
    os.nice(plan["nice"])
    # numpy is imported only now: its BLAS counts the cores and makes its threads at import
    from podium_realtime.runtime.arena import Arena
    from podium_realtime.runtime.convnet import ConvNet, NetSpec

    nets = {name: ConvNet(NetSpec(**spec)) for name, spec in plan["networks"].items()}
    arenas = [Arena.attach(memory, nets[network]) for memory, network in plan["arenas"]]
    for net in nets.values():
        spare = Arena.private(net)
        for _ in range(WARM_UPS):
            spare.run_whole()
    orders = Connection(plan["socket"])
    orders.send_bytes(b"ready")
    clock = time.perf_counter
    while True:
        try:
            number, task, stage = ORDER.unpack(orders.recv_bytes())
        except (EOFError, ConnectionResetError):
            break
        began = clock()
        if stage == WHOLE:
            arenas[task].run_whole()
        else:
            arenas[task].run(stage)
        try:
            orders.send_bytes(DONE.pack(number, began, clock()))
        except (BrokenPipeError, ConnectionResetError):
            break
    for arena in arenas:
        arena.close()


if __name__ == "__main__":
    main()
