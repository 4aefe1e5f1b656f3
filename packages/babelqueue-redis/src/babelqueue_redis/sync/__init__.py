"""The blocking shell: it sends what the core says."""
