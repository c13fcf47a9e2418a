module podium.dev/devcluster/k8s-device-plugin

go 1.26.0

require github.com/NVIDIA/k8s-device-plugin v0.19.3
