"""What the examples and tests share: a Redis, an OTLP receiver, traces as a tree and as a page."""
