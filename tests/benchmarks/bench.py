"""How fast it is, next to others: ``nox -s bench [-- quick] [publish] [NAME …]``.

Every system runs in an environment and a process of its own, in turn with the others, against a
private Redis, client and server on one processor and then on two. The best round of each counts,
by the clock; what the processor worked, on both sides, stands beside it, and suffers less from
neighbours. Nothing is asserted. With ``publish``, the README and ``docs`` say it, too.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from tests.benchmarks import bench_publish
from tests.benchmarks.bench_chart import chart
from tests.benchmarks.bench_environments import ROOT, SYSTEMS, python_of
from tests.benchmarks.bench_measures import MEASURES
from tests.benchmarks.bench_report import Results, machine, table
from tests.benchmarks.bench_rounds import Arena, pinned

ROUNDS = 15


def measured(cores: int, names: list[str], folder: Path, *, quick: bool) -> tuple[Results, Any]:
    """Measure with so many processors; return the results, and what is known of the place."""
    results: Results = {}
    with pinned(cores) as done, Progress(console=Console(stderr=True)) as progress:
        arena = Arena(folder)
        try:
            about = machine(arena.client.info("server"), os.cpu_count() or 1)
            about["pinned"] = done
            about["quick"] = quick
            about["versions"] = {
                system: arena.peer(system).ask("versions") for system in _systems(names)
            }
            rounds, scale = (3, 0.4) if quick else (ROUNDS, 1)
            task = progress.add_task(f"{cores} processor(s)", total=len(names) * rounds)
            for index, name in enumerate(names):
                progress.update(task, description=name, completed=index * rounds)
                results[name] = arena.play(
                    MEASURES[name], rounds, scale, lambda: progress.advance(task)
                )
        finally:
            arena.end()
    return results, about


def _systems(names: list[str]) -> list[str]:
    used = {contender.system for name in names for contender in MEASURES[name].contenders}
    return [system for system in SYSTEMS if system in used]


def main() -> None:
    """Measure, print, write ``bench.json`` and ``bench.svg`` to ``results``, and publish."""
    words = sys.argv[2:]
    quick = "quick" in words
    names = [word for word in words if word not in {"quick", "publish"}] or list(MEASURES)
    unknown = set(names) - set(MEASURES)
    if unknown:
        sys.exit(f"no such measure: {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    folder, console = Path(sys.argv[1]).resolve(), Console(width=150)
    for system in _systems(names):
        python_of(system, folder)
    by_cores: dict[int, Results] = {}
    about: dict[str, Any] = {}
    for cores in (1,) if quick else (1, 2):
        measures = [name for name in names if cores == 1 or MEASURES[name].both]
        if not measures:
            continue
        by_cores[cores], about = measured(cores, measures, folder, quick=quick)
        console.print(table(cores, by_cores[cores]))
    target = ROOT / "results"
    target.mkdir(exist_ok=True)
    document = {"machine": about, "results": by_cores}
    (target / "bench.json").write_text(json.dumps(document, indent=1) + "\n")
    (target / "bench.svg").write_text(chart(by_cores[1], about))
    console.print(f"written: {target / 'bench.json'} and bench.svg")
    if "publish" in words:
        console.print("written:", *bench_publish.publish(by_cores, about))


if __name__ == "__main__":
    main()
