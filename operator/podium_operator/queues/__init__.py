"""GPUQueues: their usage, their statuses and their metrics."""
