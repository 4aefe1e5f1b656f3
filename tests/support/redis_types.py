"""The type of a Redis client in tests.

redis-py annotates every reply with a union of all clients' replies, which no assertion can use.
"""

from __future__ import annotations

from typing import Any

Client = Any
