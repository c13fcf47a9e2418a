module podium.dev/devcluster/dra-driver

go 1.26.0

require k8s.io/dynamic-resource-allocation v0.36.3
