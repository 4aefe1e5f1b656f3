"""The asyncio shell: the blocking one with ``await`` in it."""
