"""``bq-redis worker``, as processes."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from babelqueue_redis import RedisJobStore, RedisPublisher
from kit.otlp import environment, receiver
from kit.redis_server import free_port
from tests.cli.conftest import Cli, Start
from tests.support.marks import both_layouts
from tests.support.waiting import eventually

TOOL = str(Path(sys.executable).with_name("opentelemetry-instrument"))
PROGRAM = """
import asyncio, os, pathlib, time

def note(text):
    with open("notes", "a") as file:
        file.write(text + "\\n")

def handle(envelope):
    note(f"handled {envelope.data.get('n')} {os.getpid()}")
    if "die" in envelope.data and not pathlib.Path("died").exists():
        pathlib.Path("died").touch()
        os._exit(9)
    time.sleep(envelope.data.get("sleep", 0))
    note(f"done {envelope.data.get('n')}")

async def aiohandle(envelope):
    await asyncio.sleep(0)
    note(f"handled {envelope.data.get('n')} in a loop")

handlers = {"urn:a": handle}
aiohandlers = {"urn:a": aiohandle}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """The folder that workers start in, with a program."""
    (tmp_path / "tasks.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def call(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Call the command in that folder, in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for module in ("bad", "tasks"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return cli


@pytest.fixture
def notes(folder: Path) -> Callable[[], str]:
    """What handlers noted."""

    def read() -> str:
        file = folder / "notes"
        return file.read_text() if file.exists() else ""

    return read


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> str:
    """End a worker; return what it told."""
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    return err.decode()


def alive(pid: int) -> bool:
    """Tell whether a process is there, and no zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the processes that a process started, and that are Python by now."""
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


@both_layouts
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_worker_runs_a_mapping_of_handlers(
    start: Start, redis_url: str, queue: str, notes: Callable[[], str], layout: str, number: int
) -> None:
    """Until a signal comes; then it says how many it handled."""
    RedisPublisher(redis_url, queue, layout=layout).publish("urn:a", {"n": 1})
    worker = start("worker", "tasks:handlers", "--queue", queue, "--layout", layout)
    eventually(lambda: "done 1" in notes())
    told = end(worker, number)
    assert worker.returncode == 0
    assert "handled 1" in told


def test_coroutine_functions_run_in_a_loop(
    start: Start, redis_url: str, queue: str, notes: Callable[[], str]
) -> None:
    """Nobody has to say so."""
    RedisPublisher(redis_url, queue).publish("urn:a", {"n": 1})
    worker = start("worker", "tasks:aiohandlers", "-q", queue)
    eventually(lambda: "handled 1 in a loop" in notes())
    end(worker)
    assert worker.returncode == 0


@pytest.mark.parametrize("kind", ["RedisConsumer", "AsyncRedisConsumer"])
def test_a_ready_consumer_is_run_as_it_is(
    start: Start, redis_url: str, queue: str, folder: Path, notes: Callable[[], str], kind: str
) -> None:
    """With the options that it has."""
    (folder / "ready.py").write_text(
        f"import babelqueue_redis, tasks\n"
        f"worker = babelqueue_redis.{kind}({redis_url!r}, {queue!r}, tasks.handlers)\n"
    )
    RedisPublisher(redis_url, queue).publish("urn:a", {"n": 1})
    worker = start("worker", "ready:worker", "--health-port", "0")
    eventually(lambda: "done 1" in notes())
    end(worker)
    assert worker.returncode == 0
    refused = start("worker", "ready:worker", "--max-tries", "5")
    _, err = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert b"leave out" in err


def test_a_job_worker_is_run_too(
    start: Start, redis_url: str, prefix: str, folder: Path, notes: Callable[[], str]
) -> None:
    """It cannot tell its health, and says so."""
    (folder / "ready.py").write_text(
        f"import babelqueue_redis as b, tasks\n"
        f"registry = b.JobRegistry()\n"
        f"registry.job('a')(lambda payload: tasks.note('job'))\n"
        f"worker = b.JobWorker(b.RedisJobStore({redis_url!r}, key_prefix={prefix!r}), registry)\n"
    )
    RedisJobStore(redis_url, key_prefix=prefix).enqueue("a", {})
    worker = start("worker", "ready:worker")
    eventually(lambda: "job" in notes())
    end(worker)
    assert worker.returncode == 0
    refused = start("worker", "ready:worker", "--health-file", "h")
    refused.communicate(timeout=60)
    assert refused.returncode == 2


@pytest.mark.parametrize(
    ("program", "target", "said"),
    [
        ("raise RuntimeError('at import')", "bad:x", "cannot be imported: RuntimeError"),
        ("import sys; sys.exit(0)", "bad:x", "cannot be imported: SystemExit"),
        ("import nothing_like_that", "bad:x", "cannot be imported: ModuleNotFoundError"),
        ("None.x", "bad:x", "cannot be imported: AttributeError"),
        ("(", "bad:x", "cannot be imported: SyntaxError"),
        ("x = {'urn:a': 1}", "bad:x", "is not callable"),
        ("x = {'': print}", "bad:x", "URN"),
        ("x = 1", "bad:x", "a worker runs a mapping"),
        ("", "bad:x", "has no 'x'"),
        ("", "bad", "module:attribute"),
        ("", "no.such:x", "there is no module 'no'"),
    ],
)
def test_what_cannot_run_is_exit_code_2(
    call: Cli, queue: str, folder: Path, program: str, target: str, said: str
) -> None:
    """With the traceback where it is the module's, and a line that says it all."""
    (folder / "bad.py").write_text(program)
    answer = call("worker", target, "--queue", queue)
    assert answer.code == 2
    last = answer.err.splitlines()[-1]
    assert last.startswith("bq-redis: ")
    assert said in last
    assert ("bad.py" in answer.err) == ("cannot be imported" in said)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--queue", "q", "--retry-after", "x"),
        ("--queue", "q", "--max-tries", "0"),
        ("--queue", "q", "--log-level", "loud"),
        ("--queue", "q", "--health-file", "/nowhere/at/all"),
        ("--queue", "q", "--unknown-urn", "x"),
    ],
    ids=" ".join,
)
def test_options_that_cannot_work_are_exit_code_2(call: Cli, words: tuple[str, ...]) -> None:
    """Before anything is taken."""
    assert call("worker", "tasks:handlers", *words).code == 2


def test_health_is_told_by_http_and_by_a_file(start: Start, queue: str, folder: Path) -> None:
    """200 while it is well; the file goes when the worker does."""
    port = free_port()
    worker = start(
        *("worker", "tasks:handlers", "-q", queue),
        *("--health-port", str(port), "--health-file", "health"),
    )
    eventually(lambda: probed(port) == 200)
    eventually((folder / "health").exists)
    taken = start("worker", "tasks:handlers", "-q", queue, "--health-port", str(port))
    taken.communicate(timeout=60)
    assert taken.returncode == 2
    end(worker)
    assert not (folder / "health").exists()


def test_without_a_redis_it_waits_and_is_not_healthy(start: Start, queue: str) -> None:
    """503, until a Redis is there; a signal still ends it."""
    port = free_port()
    nowhere = "redis://127.0.0.1:1/0"
    worker = start(
        *("worker", "tasks:handlers", "-q", queue, "--url", nowhere, "--health-port", str(port))
    )
    assert worker.stderr is not None
    while b"cannot be served for now" not in worker.stderr.readline():
        assert worker.poll() is None
    assert probed(port) == 503
    end(worker)
    assert worker.returncode == 0


def probed(port: int) -> int:
    """Return what the probe answers, or 0."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_processes_are_started_again_when_they_crash(
    start: Start, redis_url: str, queue: str, notes: Callable[[], str]
) -> None:
    """The message of the one that died comes back; all end with the parent."""
    port = free_port()
    publisher = RedisPublisher(redis_url, queue)
    worker = start(
        *("worker", "tasks:handlers", "-q", queue, "--processes", "2"),
        *("--retry-after", "1", "--health-port", str(port)),
    )
    eventually(lambda: probed(port) == 200)
    first = children(worker)
    assert len(first) == 2
    publisher.publish("urn:a", {"n": 1, "die": True})
    eventually(lambda: "done 1" in notes())
    eventually(lambda: len(children(worker)) == 2 and children(worker) != first)
    eventually(lambda: probed(port) == 200)
    pids = children(worker)
    told = end(worker)
    assert worker.returncode == 0, told
    assert not any(map(alive, pids))
    assert "ended with exit code 9" in told


def test_a_module_of_the_users_hides_none_of_ours(
    start: Start, redis_url: str, queue: str, folder: Path, notes: Callable[[], str]
) -> None:
    """The processes are started as the command was, from wherever that is."""
    script = Path(sys.executable).with_name("bq-redis")
    (folder / "queue.py").write_text("raise RuntimeError('not me')")
    RedisPublisher(redis_url, queue).publish("urn:a", {"n": 1})
    process = subprocess.Popen(
        [script, "worker", "tasks:handlers", "-q", queue, "-p", "2", "--url", redis_url],
        cwd=folder,
        stderr=subprocess.PIPE,
    )
    try:
        eventually(lambda: "done 1" in notes())
        end(process)
    finally:
        process.kill()
    assert process.returncode == 0


def test_a_handler_may_finish_when_the_parent_is_told_to_stop(
    start: Start, redis_url: str, queue: str, notes: Callable[[], str]
) -> None:
    """A signal of the terminal reaches the parent alone, and is passed on once."""
    worker = start("worker", "tasks:handlers", "-q", queue, "--processes", "2")
    RedisPublisher(redis_url, queue).publish("urn:a", {"n": 1, "sleep": 2})
    eventually(lambda: "handled 1" in notes())
    told = end(worker, signal.SIGINT)
    assert worker.returncode == 0, told
    assert "done 1" in notes()


def test_a_second_signal_interrupts_handlers(
    start: Start, redis_url: str, queue: str, notes: Callable[[], str], cli: Cli
) -> None:
    """Their messages are given back."""
    worker = start("worker", "tasks:handlers", "-q", queue, "--processes", "2")
    RedisPublisher(redis_url, queue).publish("urn:a", {"n": 1, "sleep": 600})
    eventually(lambda: "handled 1" in notes())
    idle_and_busy = set(children(worker))
    worker.send_signal(signal.SIGTERM)
    eventually(lambda: len(set(filter(alive, idle_and_busy))) == 1)
    told = end(worker)
    assert worker.returncode == 0, told
    assert cli("stats", queue, "--json").document["queues"][0]["ready"] == 1


def test_a_process_that_does_not_end_is_killed(
    start: Start, redis_url: str, queue: str, folder: Path, notes: Callable[[], str]
) -> None:
    """After shutdown_timeout and five seconds; then the exit code is 1."""
    (folder / "deaf.py").write_text(
        "import signal, tasks, time\n"
        "def handle(envelope):\n"
        "    for number in (signal.SIGTERM, signal.SIGINT):\n"
        "        signal.signal(number, signal.SIG_IGN)\n"
        "    tasks.note('deaf')\n"
        "    time.sleep(600)\n"
        "handlers = {'urn:a': handle}\n"
    )
    RedisPublisher(redis_url, queue).publish("urn:a", {})
    words = ("worker", "deaf:handlers", "-q", queue, "-p", "2", "--shutdown-timeout", "0.5")
    worker = start(*words)
    eventually(lambda: "deaf" in notes())
    pids = children(worker)
    told = end(worker)
    assert worker.returncode == 1
    assert "it is killed" in told
    assert not any(map(alive, pids))


def test_children_end_when_the_parent_is_killed(start: Start, queue: str) -> None:
    """Nobody is left behind, whatever happens to it."""
    port = free_port()
    words = ("worker", "tasks:handlers", "-q", queue, "-p", "2", "--health-port", str(port))
    worker = start(*words)
    eventually(lambda: probed(port) == 200)
    pids = children(worker)
    assert len(pids) == 2
    worker.kill()
    eventually(lambda: not any(map(alive, pids)))


def test_processes_that_cannot_run_are_not_started_again(start: Start, folder: Path) -> None:
    """Exit code 2, as without --processes."""
    (folder / "bad.py").write_text("raise RuntimeError")
    worker = start("worker", "bad:x", "--processes", "2")
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 2
    assert b"cannot be imported" in err


def test_a_change_of_the_program_starts_it_again(
    start: Start, redis_url: str, queue: str, folder: Path, notes: Callable[[], str]
) -> None:
    """Through an error in between, which waits for the next change."""
    publisher = RedisPublisher(redis_url, queue)
    worker = start("worker", "tasks:handlers", "-q", queue, "--reload")
    told: list[str] = []

    def read() -> None:
        assert worker.stderr is not None
        told.extend(line.decode() for line in worker.stderr)

    threading.Thread(target=read, daemon=True).start()
    publisher.publish("urn:a", {"n": 1})
    eventually(lambda: "done 1" in notes())
    (folder / "tasks.py").write_text("raise RuntimeError('half written')")
    eventually(lambda: any("waiting for a change" in line for line in told))
    (folder / "tasks.py").write_text(PROGRAM.replace('f"done', 'f"changed'))
    publisher.publish("urn:a", {"n": 2})
    eventually(lambda: "changed 2" in notes())
    worker.send_signal(signal.SIGINT)
    assert worker.wait(60) == 0


@pytest.mark.parametrize("processes", ["1", "2"])
def test_it_is_traced_under_the_tool(
    start: Start, redis_url: str, queue: str, notes: Callable[[], str], processes: str
) -> None:
    """Its processes, too, each with an SDK of its own."""
    with receiver() as received:
        words = ("worker", "tasks:handlers", "-q", queue, "--processes", processes)
        worker = start(*words, tool=(TOOL,), **environment(received.endpoint, "worker"))
        RedisPublisher(redis_url, queue).publish("urn:a", {"n": 1})
        eventually(lambda: "done 1" in notes())
        end(worker)
        (span,) = [span for span in received.spans if span.name == f"process {queue}"]
    assert span.kind == "CONSUMER"


def test_the_environment_of_a_child_leads_to_the_tool_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Older versions of the tool take themselves off the path."""
    import types  # noqa: PLC0415 - for a module that stands in

    from babelqueue_redis.cli import children as module  # noqa: PLC0415 - as above

    site = types.ModuleType("sitecustomize")
    site.__file__ = "/x/opentelemetry/instrumentation/auto_instrumentation/sitecustomize.py"
    monkeypatch.setitem(sys.modules, "sitecustomize", site)
    monkeypatch.setenv("PYTHONPATH", "/y")
    tool = "/x/opentelemetry/instrumentation/auto_instrumentation"
    assert module._environment()["PYTHONPATH"] == os.pathsep.join([tool, "/y"])
    monkeypatch.setenv("PYTHONPATH", tool)
    assert module._environment()["PYTHONPATH"] == tool
    site.__file__ = "/z/sitecustomize.py"
    assert re.search("auto", module._environment()["PYTHONPATH"])


def test_several_queues_need_the_worker_for_several(
    start: Start, redis_url: str, queue: str, notes: Callable[[], str]
) -> None:
    """Where the library has it, it is run."""
    import babelqueue_redis  # noqa: PLC0415 - to ask what it has

    RedisPublisher(redis_url, f"{queue}.dlq").publish("urn:a", {"n": 1})
    worker = start("worker", "tasks:handlers", "--queue", f"{queue},{queue}.dlq")
    if hasattr(babelqueue_redis, "RedisWorker"):
        eventually(lambda: "done 1" in notes())
        end(worker)
        assert worker.returncode == 0
    else:
        worker.communicate(timeout=60)
        assert worker.returncode == 2
