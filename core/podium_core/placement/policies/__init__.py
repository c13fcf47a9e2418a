"""The placement policies, and the interface that they share."""
