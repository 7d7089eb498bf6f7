"""The engine Ray. Only `client`, a process of its own, imports ray: it ends its process when the cluster's head dies."""
