"""SGPRS: periodic inference with deadlines on partitions of a GPU. Called by `podium realtime`."""
