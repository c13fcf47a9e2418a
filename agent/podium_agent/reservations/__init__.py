"""GPU reservations: GPUs of this node that Podium obtained through reservation pods."""
