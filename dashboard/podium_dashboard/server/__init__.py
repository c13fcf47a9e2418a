"""The HTTP server of the pages: who may read, what may be sent, and how much at a time."""
