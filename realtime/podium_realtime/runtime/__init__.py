"""Execution of real networks in pre-warmed partitions: worker processes on core sets, or streams of a CUDA device."""
