"""What the examples and the tests share: a Redis, an OTLP receiver, a trace as a tree."""
