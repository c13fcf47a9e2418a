"""Scheduling algorithms of the field, each with a certificate of what it reached. Called by `podium optimise`."""
