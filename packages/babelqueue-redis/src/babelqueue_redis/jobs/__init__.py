"""The lease-based job store: what it sends to Redis, what it reads, who runs a job. Pure."""
