from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from babelqueue_redis.cli.app import _hoisted
from babelqueue_redis.cli.output import shown
from babelqueue_redis.cli.session import redacted
from tests.cli.conftest import Cli, Start
from tests.support.waiting import eventually

NOWHERE = "redis://bob:hunter2@127.0.0.1:1/0"


def test_the_global_options_may_stand_anywhere() -> None:
    """But for those behind a double dash."""
    assert _hoisted(["stats", "q", "--json", "--url", "u"]) == [
        "--json",
        "--url",
        "u",
        "stats",
        "q",
    ]
    assert _hoisted(["stats", "--layout=zset"]) == ["--layout=zset", "stats"]
    assert _hoisted(["publish", "--", "--json"]) == ["publish", "--", "--json"]
    assert _hoisted(["stats", "--url"]) == ["--url", "stats"]


@pytest.mark.parametrize(
    "words",
    [
        ("stats", "q"),
        ("peek", "q"),
        ("tail", "q"),
        ("doctor", "q"),
        ("dlq", "list", "q"),
        ("dlq", "redrive", "q"),
        ("jobs", "counts"),
        ("publish", "q", "urn:a", "{}"),
    ],
    ids=" ".join,
)
def test_without_a_redis_the_exit_code_is_3(cli: Cli, words: tuple[str, ...]) -> None:
    """And one line says so, without the password."""
    answer = cli(*words, url=NOWHERE)
    assert answer.code == 3
    assert "127.0.0.1:1" in answer.err
    assert "hunter2" not in answer.out + answer.err


def test_an_error_is_a_json_line_on_stderr_with_json(cli: Cli) -> None:
    """Nothing is on stdout then."""
    answer = cli("stats", "q", "--json", url=NOWHERE)
    assert answer.out == ""
    said = json.loads(answer.err)
    assert (said["type"], said["exit_code"]) == ("ConnectionLostError", 3)


def test_wrong_usage_is_exit_code_2(cli: Cli) -> None:
    """Whether typer or the library finds out."""
    assert cli("stats", "--nope").code == 2
    assert cli("stats", "q", "--layout", "nope").code == 2
    assert cli("stats", "q:processing").code == 2
    assert cli("stats", "q", url="redis://127.0.0.1:no/").code == 2


def test_what_redis_refuses_is_exit_code_4(cli: Cli, client: object, queue: str) -> None:
    """Another type at a queue's key, for instance."""
    client.set(queue, "x")  # type: ignore[attr-defined]  # see Client
    assert cli("stats", queue).code == 4


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://:secret@h/1", "redis://:***@h/1"),
        ("rediss://bob:secret@h:1/1?password=secret", "rediss://bob:***@h:1/1"),
        ("redis://bob@h", "redis://bob@h"),
        ("unix://bob:secret@/tmp/r.sock?password=secret", "unix://bob:***@/tmp/r.sock"),
        ("redis://[secret", "a URL that cannot be read"),
        ("redis://:se@cret@h", "redis://:***@h"),
    ],
)
def test_a_url_is_told_without_what_is_secret(url: str, told: str) -> None:
    """The query goes, too: redis-py looks for passwords there as well."""
    assert redacted(url) == told


def test_nothing_that_is_shown_speaks_to_the_terminal() -> None:
    """Escapes, line breaks, what turns the direction of writing, bytes that are no text."""
    assert shown("a\x1b[31m\n\u202eé\ud800") == "a\\x1b[31m\\n\\u202eé\\ud800"
    assert shown(b"\xff\x07a") == "\\xff\\x07a"


def test_the_help_names_every_command_and_the_exit_codes(cli: Cli) -> None:
    """As ``-h``, too."""
    answer = cli("-h")
    assert answer.code == 0
    for name in ("publish", "worker", "stats", "peek", "tail", "dlq", "doctor", "jobs"):
        assert name in answer.out
    assert "3 no Redis" in answer.out


def test_a_completion_can_be_had(start: Start) -> None:
    """For the shells that typer knows."""
    process = start("--show-completion", "bash")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert b"bq-redis" in out


def test_without_the_extra_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    """And nothing is imported that is not there."""
    program = (
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *a: None if name == 'typer' else find(name, *a)\n"
        "from babelqueue_redis.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr == "bq-redis needs the extra: pip install 'babelqueue-redis[cli]'\n"


def test_a_reader_that_leaves_ends_it_quietly(start: Start, cli: Cli, queue: str) -> None:
    """As ``head`` does: exit code 141, and no traceback."""
    for _ in range(3):
        cli("publish", queue, "urn:a", json.dumps({"text": "x" * 1_000_000}))
    process = start("peek", queue, "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


def test_a_terminal_that_knows_ascii_only_gets_escapes(start: Start, cli: Cli, queue: str) -> None:
    """And JSON stays JSON."""
    cli("publish", queue, "urn:é", '{"name": "Zoë ☃"}')
    poor = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    out, err = start("peek", queue, **poor).communicate(timeout=60)
    assert b"Zo\\xeb \\u2603" in out, err
    out, _ = start("peek", queue, "--json", **poor).communicate(timeout=60)
    assert json.loads(out)["messages"][0]["data"] == {"name": "Zoë ☃"}


def test_a_question_that_nobody_can_answer_is_refused(start: Start, queue: str) -> None:
    """It says what to add."""
    process = start("dlq", "purge", queue)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"add --yes" in err


def test_a_terminal_is_asked_and_gets_colours_unless_told(
    redis_url: str, cli: Cli, queue: str, tmp_path: Path
) -> None:
    """``NO_COLOR`` is respected; ``n`` is exit code 1, and nothing is removed."""
    cli("publish", f"{queue}.dlq", "urn:a", "{}")
    code, text = _at_a_terminal(redis_url, tmp_path, "n\n", "dlq", "purge", queue)
    assert code == 1
    assert "Remove 1 dead letters" in text
    _, coloured = _at_a_terminal(redis_url, tmp_path, "", "stats", queue)
    assert "\x1b[" in coloured
    _, plain = _at_a_terminal(redis_url, tmp_path, "", "stats", queue, NO_COLOR="1")
    assert "\x1b[3" not in plain
    assert cli("stats", queue, "--json").document["queues"][0]["dead"] == 1


def _at_a_terminal(
    redis_url: str, folder: Path, typed: str, *words: str, **env: str
) -> tuple[int, str]:
    """Run the command at a pseudo-terminal; return its exit code and what it wrote."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "babelqueue_redis", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**os.environ, "BABELQUEUE_REDIS_URL": redis_url, "TERM": "xterm", **env},
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    written = b""
    try:
        while chunk := os.read(ours, 65_536):
            written += chunk
    except OSError:  # the other side hung up
        pass
    os.close(ours)
    return process.wait(60), written.decode()


def test_sigterm_ends_a_command_as_an_exception_does(start: Start, queue: str) -> None:
    """Exit code 143, as a shell has it."""
    process = start("tail", queue)
    pid = process.pid
    eventually(lambda: b"-m\0babelqueue_redis" in Path(f"/proc/{pid}/cmdline").read_bytes())
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (143, -signal.SIGTERM)
