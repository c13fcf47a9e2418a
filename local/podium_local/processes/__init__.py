"""Processes of the trials: start, suspend, resume, end, and follow their logs."""
