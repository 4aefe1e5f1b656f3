"""What this package instruments. Pre-releases of both will do."""

_instruments_any = ("babelqueue-redis >= 0.1.0.dev0",)
_instruments_sdk = ("babelqueue >= 1.18.0.dev0",)
