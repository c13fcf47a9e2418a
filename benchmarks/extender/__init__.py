"""The scheduler extender: latency, throughput, malformed requests and wake-ups."""
