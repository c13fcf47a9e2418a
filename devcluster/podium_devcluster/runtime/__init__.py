"""The parts of a running cluster: control plane, nodes, network, control groups, processes."""
