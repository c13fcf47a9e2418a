"""Why a search does not run now: its reasons, what is ahead of it, and its position among the waiting trials."""
