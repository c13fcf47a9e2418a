"""`container-checkpoint`, experimental: a live container becomes an image from which it goes on on another node."""
