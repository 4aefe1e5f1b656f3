"""The version the three packages share."""

__version__ = "0.1.0"
