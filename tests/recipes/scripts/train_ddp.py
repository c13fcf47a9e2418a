"""A small regression by PyTorch DDP on the CPU, with dropout that differs between the ranks."""

import sys
import time

from podium_ddp import requests, restore, save, start, trial

import torch  # isort: skip
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
start("gloo")
rank, world = distributed.get_rank(), distributed.get_world_size()
torch.manual_seed(3)
x = torch.randn(96, 4)
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1))
rows = TensorDataset(x, x.sum(dim=1) ** 2)
sampler = DistributedSampler(rows, shuffle=True, seed=3)
batches = DataLoader(rows, batch_size=8, sampler=sampler)
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
torch.manual_seed(100 + rank)
for epoch in range(restore(parts) + 1, 41):
    sampler.set_epoch(epoch)
    total = torch.zeros(())
    for inputs, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs)[:, 0], labels)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    scheduler.step()
    distributed.all_reduce(total)
    trial.report(step=epoch, loss=total / (world * len(batches)))
    time.sleep(0.05)
    wanted, stop = requests()
    if wanted or epoch % 10 == 0:
        save(epoch, parts)
    if stop:
        break
distributed.destroy_process_group()
if trial.stopping():
    sys.exit(trial.STOPPED)
