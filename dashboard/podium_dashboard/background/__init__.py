"""What takes seconds: importance of parameters, expected times, replays. Each runs in a process of its own."""
