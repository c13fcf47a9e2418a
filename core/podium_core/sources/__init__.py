"""Readers of what a trial writes or serves: files, event files, and pages. Agents and local mode use them."""
