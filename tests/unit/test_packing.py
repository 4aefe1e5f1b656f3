"""Commands are packed byte for byte as redis-py packs them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis._parsers.encoders import Encoder
from redis.connection import PythonRespSerializer

from babelqueue_redis.packing import Packer

THEIRS = PythonRespSerializer(6000, Encoder("utf-8", "strict", decode_responses=False).encode)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.sampled_from(["RPUSH", "CONFIG GET", b"EVALSHA"]),
    st.lists(TEXT | st.binary() | st.integers() | st.just(b"x" * 7000)),
)
def test_a_command_is_packed_as_redis_py_does(name: Any, args: list[Any]) -> None:
    """Text, bytes and numbers, small and large."""
    assert b"".join(Packer().pack(name, *args)) == b"".join(THEIRS.pack(name, *args))


@pytest.mark.parametrize("size", [10, 6001, 2_000_000])
def test_what_is_large_is_not_copied(size: int) -> None:
    """It is a piece of its own, the very object."""
    body = b"x" * size
    assert any(piece is body for piece in Packer().pack("RPUSH", "q", body)) == (size > 6000)
