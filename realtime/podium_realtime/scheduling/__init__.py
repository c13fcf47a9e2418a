"""Which stage runs when, where and in which stream: pure decisions on injected time, one dispatcher, many policies."""
