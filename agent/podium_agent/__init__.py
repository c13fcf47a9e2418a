"""Podium on each node: telemetry, device plugin, gate, log reader, arbiter and suspender, in one asyncio process."""
