"""Real-time scheduling of periodic inference on GPU partitions (SGPRS, DARIS), used by `podium realtime`."""
