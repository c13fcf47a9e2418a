"""Access to the API server: kubeconfig, credentials, connections, and reading of answers."""
