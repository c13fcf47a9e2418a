"""Fair sharing of GPUs of different speeds: time shares by LP and convex optimisation, then rounds."""
