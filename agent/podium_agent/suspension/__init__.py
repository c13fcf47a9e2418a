"""Suspension methods: stop a running trial so that its GPU is free, and resume it later."""
