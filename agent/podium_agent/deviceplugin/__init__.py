"""Device plugins: advertise slots (`podium.dev/gpu`) and whole GPUs of this node to the kubelet."""
