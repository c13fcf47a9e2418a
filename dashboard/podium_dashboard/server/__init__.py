"""The HTTP server of the pages: access, the stream of changes, and limits."""
