"""A node in a virtual machine: systemd, cgroup version 2, containerd and a kubelet with the systemd driver."""
