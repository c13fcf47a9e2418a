"""Tables, lines and JSON that commands print."""
