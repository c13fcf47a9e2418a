"""Print what this container has of GPUs as one line of JSON, then work and report steps.

argv: number of steps, seconds of work in each. The last line stays unchanged once all steps are reported.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import stat
import sys
import time


def device_nodes() -> dict[str, list[int]]:
    """Return major and minor number of each NVIDIA device node."""
    found = {}
    for name in os.listdir("/dev"):
        status = os.stat(f"/dev/{name}")
        if re.fullmatch(r"nvidia\d+|nvidiactl", name) and stat.S_ISCHR(status.st_mode):
            found[name] = [os.major(status.st_rdev), os.minor(status.st_rdev)]
    return found


def cuda_devices() -> list[str] | str:
    """Return the UUIDs of the devices that CUDA lists; the error if there is no driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    count, device, uuid = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    codes = [cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count))]
    found = []
    for number in range(count.value):
        codes += [cuda.cuDeviceGet(ctypes.byref(device), number), cuda.cuDeviceGetUuid_v2(uuid, device)]
        found.append(bytes(uuid).hex())
    return found if not any(codes) else f"CUDA errors {codes}"


def main() -> None:
    """Print the devices, then one line for each step."""
    cuda = cuda_devices()
    with open("/proc/self/maps") as file:
        maps = file.read().splitlines()
    seen = {
        "nodes": device_nodes(),
        "cuda": cuda,
        "variable": os.environ.get("NVIDIA_VISIBLE_DEVICES"),
        "libraries": sorted({line.split()[-1] for line in maps if "libcuda" in line}),
    }
    print(json.dumps({"devices": seen}), flush=True)
    for step in range(1, int(sys.argv[1]) + 1):
        end = time.thread_time() + float(sys.argv[2])
        while time.thread_time() < end:
            pass
        print(json.dumps({"epoch": step, "val_acc": step / 100}), flush=True)


main()
