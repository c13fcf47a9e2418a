"""Makes the GPUs of this node a countable resource of the kubelet: shares of `podium.dev/gpu`."""
