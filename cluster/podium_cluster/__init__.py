"""The only package that uses the Kubernetes API: client, watch caches, events, leases, health, logging."""
