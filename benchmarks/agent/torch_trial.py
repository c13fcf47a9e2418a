"""A PyTorch trial for bench_gpu: it trains a small network and holds a block of GPU memory.

    python torch_trial.py STEPS GIBIBYTES SEED [WORKERS]

It prints `step loss` with all bits of the loss, and every CHECK steps the checksum of the block. The same seed prints
the same lines, alone or suspended, so a bit that was not restored shows. WORKERS processes load its data, without CUDA.
"""

from __future__ import annotations

import os
import sys

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is deterministic only with it

import torch
from torch.utils.data import DataLoader, TensorDataset

CHECK = 200  # steps between two checksums of the block


def main() -> None:
    steps, gibibytes, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    workers = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    block = torch.empty(int(gibibytes * 2**30) // 4, dtype=torch.int32, device="cuda")
    for piece in block.split(1 << 28):
        piece.random_(generator=torch.Generator("cuda").manual_seed(seed))
    first, second = torch.nn.Conv2d(3, 64, 4, stride=2), torch.nn.Conv2d(64, 128, 4, stride=4)
    head = torch.nn.Linear(128 * 9, 10)
    network = torch.nn.Sequential(first, torch.nn.ReLU(), second, torch.nn.ReLU(), torch.nn.Flatten(), head).cuda()
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    images, labels = torch.randn(4096, 3, 32, 32), torch.randint(10, (4096,))
    loader = DataLoader(TensorDataset(images, labels), 256, num_workers=workers, persistent_workers=workers > 0)
    step = 0
    while step < steps:
        for image, label in loader:
            loss = torch.nn.functional.cross_entropy(network(image.cuda()), label.cuda())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step += 1
            line = f"{step} {loss.item().hex()}"
            if step % CHECK == 0:
                line += f" {sum(int(piece.sum(dtype=torch.int64)) for piece in block.split(1 << 28))}"
            print(line, flush=True)
            if step == steps:
                return


if __name__ == "__main__":
    main()
