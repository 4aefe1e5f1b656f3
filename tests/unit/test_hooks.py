from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import msgspec
import pytest

from babelqueue_redis import hooks
from babelqueue_redis.hooks import Hook
from babelqueue_redis.steps import Receiving, Serving, Settling
from babelqueue_redis.values import Destination, Outcome, Publication, Reservation


@pytest.fixture(autouse=True)
def _no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every test without hooks."""
    monkeypatch.setattr(hooks, "_registered", ())


PUBLICATION = Publication(
    Destination("q", "legacy"), "urn:a", "id", None, {}, msgspec.Raw(b"{}"), {}, 0
)


PLACE = Destination("q", "legacy")
TAKEN = Reservation("q", b"", {}, "", b"")


class Adds(Hook):
    """Adds a header, and notes what it sees."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    @contextlib.contextmanager
    def publishing(self, publication: Publication) -> Iterator[Publication]:
        """Enclose a publish."""
        self.seen.append(f"{self.name} enters")
        try:
            headers = {**publication.headers, self.name: "1"}
            yield msgspec.structs.replace(publication, headers=headers)
        except KeyError:
            self.seen.append(f"{self.name} sees")
            raise
        finally:
            self.seen.append(f"{self.name} leaves")


def test_hooks_nest_and_hand_the_publication_on() -> None:
    """The first registered is the outermost."""
    seen: list[str] = []
    hooks.register(Adds("a", seen))
    hooks.register(Adds("b", seen))
    with hooks.publishing(PUBLICATION) as publication:
        assert publication.headers == {"a": "1", "b": "1"}
    assert seen == ["a enters", "b enters", "b leaves", "a leaves"]
    assert PUBLICATION.headers == {}


def test_an_error_of_the_step_passes_through(caplog: pytest.LogCaptureFixture) -> None:
    """Hooks see it, and it is not reported as theirs."""
    seen: list[str] = []
    hooks.register(Adds("a", seen))
    with pytest.raises(KeyError), hooks.publishing(PUBLICATION):
        raise KeyError
    assert seen == ["a enters", "a sees", "a leaves"]
    assert not caplog.records


def test_a_hook_cannot_swallow_an_error() -> None:
    """A step that failed has failed."""

    class Swallows(Hook):
        def publishing(self, publication: Publication) -> contextlib.suppress:  # type: ignore[override]
            return contextlib.suppress(KeyError)

    hooks.register(Swallows())
    with pytest.raises(KeyError), hooks.publishing(PUBLICATION):
        raise KeyError


class Broken(Hook):
    """Fails where it is told to."""

    def __init__(self, where: str) -> None:
        self.where = where

    def publishing(self, publication: Publication) -> Broken:  # type: ignore[override]
        """Fail, or give a context manager that fails."""
        if self.where == "call":
            raise RuntimeError
        return self

    def __enter__(self) -> object:
        if self.where == "enter":
            raise RuntimeError
        return "garbage" if self.where == "value" else None

    def __exit__(self, *_: object) -> None:
        if self.where == "exit":
            raise RuntimeError


BAD_CHANGES: list[dict[str, object]] = [
    {"headers": {"a": 1}},
    {"headers": None.__class__},
    {"urn": " "},
    {"trace_id": 5},
    {"data": "x"},
    {"meta": {"id": "mine"}},
    {"destination": Destination("elsewhere", "legacy")},
]


@pytest.mark.parametrize("change", BAD_CHANGES, ids=str)
def test_a_change_that_cannot_be_published_is_not_made(
    change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """It would fail the publish, which is not the hook's to do."""

    class Spoils(Hook):
        def publishing(
            self, publication: Publication
        ) -> contextlib.AbstractContextManager[Publication]:
            return contextlib.nullcontext(msgspec.structs.replace(publication, **change))

        def publishing_many(
            self, publications: tuple[Publication, ...]
        ) -> contextlib.AbstractContextManager[tuple[Publication, ...]]:
            return contextlib.nullcontext(publications[:1])

    hooks.register(Spoils())
    with hooks.publishing(PUBLICATION) as publication:
        assert publication == PUBLICATION
    with hooks.publishing_many((PUBLICATION, PUBLICATION)) as publications:
        assert publications == (PUBLICATION, PUBLICATION)
    assert caplog.text.count("Spoils made no publication") == 2


def test_a_hook_may_change_what_a_producer_may(caplog: pytest.LogCaptureFixture) -> None:
    """URN, chain, headers and extra entries; the message stays the same one."""

    class Changes(Hook):
        def publishing(
            self, publication: Publication
        ) -> contextlib.AbstractContextManager[Publication]:
            changed = publication.carrying({"k": "v", "": "x"}, " chain ")
            return contextlib.nullcontext(
                msgspec.structs.replace(changed, urn=" urn:b ", message_id="x")
            )

    hooks.register(Changes())
    with hooks.publishing(PUBLICATION) as publication:
        assert (publication.urn, publication.trace_id) == ("urn:b", "chain")
        assert publication.headers == {"k": "v"}
        assert publication.message_id == PUBLICATION.message_id
    assert not caplog.records


def test_hooks_that_are_equal_are_two() -> None:
    """A hook is told by its identity."""

    class Equal(Hook):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        def __hash__(self) -> int:
            return 0

    first, second = Equal(), Equal()
    hooks.register(first)
    hooks.register(second)
    assert len(hooks._registered) == 2
    hooks.unregister(second)
    assert hooks._registered[0] is first


@pytest.mark.parametrize("where", ["call", "enter", "value", "exit"])
def test_a_broken_hook_is_logged_and_changes_nothing(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The step runs once, with what the other hooks made of it."""
    seen: list[str] = []
    hooks.register(Adds("a", seen))
    hooks.register(Broken(where))
    hooks.register(Adds("b", seen))
    runs = 0
    with caplog.at_level(logging.ERROR), hooks.publishing(PUBLICATION) as publication:
        runs += 1
        assert publication.headers == {"a": "1", "b": "1"}
    assert runs == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert seen == ["a enters", "b enters", "b leaves", "a leaves"]


def test_a_hook_is_registered_once_and_taken_out_again() -> None:
    """Twice is once; taking out what is not there is nothing."""
    hook = Hook()
    hooks.register(hook)
    hooks.register(hook)
    assert list(hooks._registered) == [hook]
    hooks.unregister(hook)
    hooks.unregister(hook)
    assert list(hooks._registered) == []


def test_the_base_class_does_nothing() -> None:
    """A user overrides what is needed."""
    hooks.register(Hook())
    with hooks.publishing(PUBLICATION) as one, hooks.publishing_many((PUBLICATION,)) as many:
        assert one is PUBLICATION
        assert many == (PUBLICATION,)
    for step in (
        Receiving(PLACE),
        Serving(PLACE, lambda: None),
    ):
        name = type(step).__name__.lower()
        with getattr(hooks, name)(step) as given:
            assert given is step
    with hooks.settling_all([Settling(PLACE, TAKEN, Outcome.ACKED)]) as errors:
        assert errors == [None]
    assert not hooks.traffic_is_shown()


def test_a_hook_is_told_how_a_step_ended() -> None:
    """What it is given is filled in meanwhile; its own value replaces nothing."""
    told: list[object] = []

    class Told(Hook):
        @contextlib.contextmanager
        def settling(self, settling: Settling) -> Iterator[str]:
            told.append(settling.outcome)
            yield "garbage"
            told.append(settling.outcome)

    hooks.register(Told())
    step = Settling(PLACE, TAKEN, Outcome.ACKED)
    with hooks.settling_all([step]):
        step.outcome = Outcome.EXPIRED
    assert told == [None, Outcome.EXPIRED]


def test_a_message_that_is_left_is_not_settled() -> None:
    """Nothing is sent, so there is nothing to enclose."""
    told: list[Settling] = []

    class Told(Hook):
        def settling(self, settling: Settling) -> None:
            told.append(settling)

    hooks.register(Told())
    steps = [Settling(PLACE, TAKEN, each) for each in (Outcome.LEFT, Outcome.ACKED)]
    with hooks.settling_all(steps):
        pass
    assert told == steps[1:]


def test_each_settlement_of_a_trip_ends_in_its_own_way() -> None:
    """One that Redis did not confirm is no error of the others."""
    told: list[tuple[Outcome, type[BaseException] | None]] = []

    class Told(Hook):
        @contextlib.contextmanager
        def settling(self, settling: Settling) -> Iterator[None]:
            try:
                yield
            except ValueError as error:
                told.append((settling.intended, type(error)))
                raise
            told.append((settling.intended, None))

    hooks.register(Told())
    steps = [Settling(PLACE, TAKEN, each) for each in (Outcome.ACKED, Outcome.RETRIED)]
    with hooks.settling_all(steps) as errors:
        errors[0] = ValueError()
    assert told == [(Outcome.RETRIED, None), (Outcome.ACKED, ValueError)]


def test_notes_are_each_reservations_own() -> None:
    """What one leaves there, another does not see."""
    other = Reservation("q", b"", {}, "", b"")
    TAKEN.notes["left"] = True
    assert other.notes == {}


def test_a_step_may_have_nothing_to_enclose(caplog: pytest.LogCaptureFixture) -> None:
    """``None`` in place of a context manager; the other hooks are entered."""

    class Nothing(Hook):
        def publishing(self, publication: Publication) -> None:
            return None

    seen: list[str] = []
    hooks.register(Nothing())
    hooks.register(Adds("a", seen))
    with hooks.publishing(PUBLICATION) as publication:
        assert publication.headers == {"a": "1"}
    assert seen == ["a enters", "a leaves"]
    assert not caplog.records


def test_one_hook_is_enough_to_show_the_traffic() -> None:
    """And none is when it is gone."""

    class Shows(Hook):
        shows_traffic = True

    shows = Shows()
    hooks.register(Hook())
    hooks.register(shows)
    assert hooks.traffic_is_shown()
    hooks.unregister(shows)
    assert not hooks.traffic_is_shown()
