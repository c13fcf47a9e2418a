"""HTTP: how requests reach the verbs, and their limits."""
