"""A real Kubernetes cluster on one Linux machine, without Docker and without a registry.

Imports nothing of Podium, and nothing of Podium imports it: only tests, `make demo` and people call it.
"""

from __future__ import annotations
