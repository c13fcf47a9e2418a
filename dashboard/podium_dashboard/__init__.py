"""The live page of searches, `podium dashboard`: sources, pages, and the server. It changes nothing."""
