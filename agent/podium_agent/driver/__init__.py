"""The NVIDIA driver's libraries and device nodes on the agent's node: where they are, and how the agent gets them."""
