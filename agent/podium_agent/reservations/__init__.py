"""GPUs of this node that Podium holds by reservation pods."""
