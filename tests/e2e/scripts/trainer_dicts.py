"""Prints metrics as Hugging Face's Trainer does: Python dicts, not JSON, with nan for missing values."""

import steps

for step, value in steps.run():
    print({"loss": float(value), "grad_norm": float("nan"), "learning_rate": 5e-05, "epoch": float(step)})
    print({"eval_runtime": 0.25, "epoch": float(step)})
