"""Local mode: a search on the GPUs or CPU cores of one machine, with neither Kubernetes nor root."""
