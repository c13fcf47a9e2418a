"""Callers of the dashboard in a cluster: their identity, their rights, and the pages that these allow."""
