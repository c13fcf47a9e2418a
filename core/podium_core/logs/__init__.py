"""Read the lines of a trial's log: from printed text to steps and values, in bounded time and memory. Pure."""
