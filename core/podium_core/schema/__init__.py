"""The API objects of podium.dev/v1alpha1 as pydantic models: the edge between Kubernetes payloads and the core."""
