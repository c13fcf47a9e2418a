"""Live migration (`container-checkpoint`, experimental): move a running container to another node by an image."""
