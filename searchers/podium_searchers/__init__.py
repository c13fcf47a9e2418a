"""Searchers: propose the parameters of a trial from the job's spec and its number, so a restart changes nothing."""
