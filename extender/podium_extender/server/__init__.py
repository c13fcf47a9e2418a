"""The HTTP server of the verbs and its limits."""
