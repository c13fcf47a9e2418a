"""Slots of the GPUs: how many pods a job may have, and which pods move or release theirs."""
