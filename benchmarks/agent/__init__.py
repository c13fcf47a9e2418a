"""The agent: suspension, requeue, cuda-checkpoint and live migration."""
