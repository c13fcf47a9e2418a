"""Suspension methods: stop a running trial so that its GPU is free, and resume it later.

The agent calls them for the containers of a pod, local mode for the processes of a command.
"""
