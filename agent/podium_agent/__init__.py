"""The agent of one node: device plugin, gate, scheduling, suspension and reports in one asyncio process."""
