"""The engine Ray. Only `client`, a process of its own, imports ray, which ends its process when a head dies."""
