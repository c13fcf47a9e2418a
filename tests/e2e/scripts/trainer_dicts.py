"""What Hugging Face's Trainer prints: Python's dicts, no JSON, with a nan where there is none."""

import steps

for step, value in steps.run():
    print({"loss": float(value), "grad_norm": float("nan"), "learning_rate": 5e-05, "epoch": float(step)})
    print({"eval_runtime": 0.25, "epoch": float(step)})
