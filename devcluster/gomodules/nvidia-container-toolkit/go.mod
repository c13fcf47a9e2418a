module podium.dev/devcluster/nvidia-container-toolkit

go 1.26.0

require github.com/NVIDIA/nvidia-container-toolkit v1.20.2
