"""The public conformance suite of BabelQueue, run against this implementation."""
