"""Removal of the checkpoint folders of deleted jobs."""
