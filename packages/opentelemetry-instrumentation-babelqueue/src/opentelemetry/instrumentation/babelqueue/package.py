"""What this package instruments."""

_instruments_any = ("babelqueue-redis >= 0.1.0.dev0",)
