"""The only room that talks to the Kubernetes API: client, watch caches, events, leases, health, logging."""
