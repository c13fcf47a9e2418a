"""GPU reservations: GPUs obtained from another device plugin through reservation pods."""
