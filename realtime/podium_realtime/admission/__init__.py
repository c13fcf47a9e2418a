"""May one more periodic task join what already runs on a GPU? A schedulability test, and the door that asks it."""
