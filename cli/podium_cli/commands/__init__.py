"""One file a command: its `app` has a function with the options, which reads the input and prints the result."""
