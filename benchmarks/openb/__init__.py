"""Placement policies on the openb trace of a production cluster."""
