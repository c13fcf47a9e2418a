"""Attempts at a trial on one machine: what they are given, which of them run, what they use and leave behind. Pure."""
