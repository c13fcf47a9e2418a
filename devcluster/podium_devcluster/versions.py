"""Versions of everything that is built and run. No other file has any, except each go.mod in `devcluster/gomodules`."""

from __future__ import annotations

KUBERNETES = "1.36.3"
OLDER_KUBERNETES = "1.34.4"
"""The older minor version whose kube-scheduler `make test-older-scheduler` uses."""
ETCD = "3.6.16"
HELM = "3.21.4"
KIND = "0.33.0"
GO_MINIMUM = (1, 26)
NODE_SUITE = "forky"
"""Debian release of the nodes (containerd 2.1, runc 1.3, CRIU 4.2): bookworm's CRIU 3.17 fails on new kernels."""
IMAGE_SUITE = "trixie"
"""Debian release of the images: Python 3.13."""
