"""Where the suite comes from: the pinned source distribution of the reference SDK on PyPI.

It is downloaded once, checked by hash, and kept outside version control.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

VERSION = "1.8.0"
_SDK = "babelqueue==1.24.0"
_ARCHIVE = "babelqueue-1.24.0.tar.gz"
_SHA256 = "3918ef1e53ad08be2311f27840d1c949159a1d66701ebe899acabbd86a430da1"
_CACHE = Path(__file__).parents[2] / ".cache" / "conformance"
_FOLDER = "babelqueue-1.24.0/tests/conformance"


class SuiteUnavailableError(RuntimeError):
    """The suite could not be downloaded."""


@dataclass(frozen=True, eq=False)
class Case:
    """One case: its section, its id in the suite's own scheme, and its content."""

    section: str
    id: str
    block: str
    content: dict[str, Any]

    def __str__(self) -> str:
        """Name it as results do."""
        return f"{self.section}/{self.id}"


@cache
def folder() -> Path:
    """Return the suite's folder, downloading it when it is not there.

    Raises:
        SuiteUnavailableError: It cannot be had, or is not the one that is pinned.
    """
    archive = _CACHE / _ARCHIVE
    if not archive.exists():
        _download(archive)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != _SHA256:
        msg = f"{archive} is not the pinned source distribution of {_SDK}"
        raise SuiteUnavailableError(msg)
    target = _CACHE / _FOLDER
    if not target.exists():
        _extract(archive, target)
    return target


def fixture(path: str) -> bytes:
    """Return the bytes of a fixture file."""
    return (folder() / path).read_bytes()


@cache
def manifest() -> dict[str, Any]:
    """Return the manifest.

    Raises:
        SuiteUnavailableError: As :func:`folder`, or it is another version of the suite.
    """
    content: dict[str, Any] = json.loads((folder() / "manifest.json").read_text("utf-8"))
    if content["conformance_version"] != VERSION:
        msg = f"the suite is {content['conformance_version']}, not {VERSION}"
        raise SuiteUnavailableError(msg)
    return content


def cases(section: str) -> Iterator[Case]:
    """Give every case of a section, with the ids that the suite's results format prescribes."""
    content = manifest()[section]
    if isinstance(content, list):
        yield from _listed(section, "", content)
        return
    for key, value in content.items():
        if key == "cases":
            yield from _listed(section, "", value)
        elif isinstance(value, dict) and "cases" in value:
            yield from _listed(section, key, value["cases"])
        elif isinstance(value, dict):
            yield Case(section, key, key, value)


def _listed(section: str, block: str, listed: list[dict[str, Any]]) -> Iterator[Case]:
    for index, content in enumerate(listed):
        name = content.get("name")
        if block:
            yield Case(section, f"{block}/{name or index}", block, content)
        else:
            yield Case(section, name or f"{section}#{index}", "", content)


def _extract(archive: Path, target: Path) -> None:
    """Put the whole folder in its place at once: several processes may be at it."""
    with tempfile.TemporaryDirectory(dir=_CACHE) as draft:
        with tarfile.open(archive) as opened:
            members = [m for m in opened.getmembers() if m.name.startswith(_FOLDER)]
            # Python 3.11.2, as in Debian 12, has no filters.
            how: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            opened.extractall(draft, members, **how)  # noqa: S202 - pinned by its hash
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # another process was faster
            Path(draft, _FOLDER).rename(target)


def _download(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as draft:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", ":all:", "--dest", draft, _SDK]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            msg = f"pip could not download {_SDK}: {done.stderr.strip()[-500:]}"
            raise SuiteUnavailableError(msg)
        Path(draft, _ARCHIVE).replace(archive)
