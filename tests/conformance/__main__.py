"""``nox -s conformance [-- SECTION …]``: run the suite, or some of its sections."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.conformance.run import results, select, verdict_of

FILE = Path("results", "conformance.json")


def main(names: list[str]) -> int:
    """Write the results file, print a table by section; last comes ``N passed, M skipped``."""
    console = Console()
    cases = [case for _, listed in select(names) for case in listed]
    verdicts = {case: verdict_of(case) for case in track(cases, "asking", console=console)}
    counts: dict[str, Counter[str]] = {}
    for case, (status, reason) in verdicts.items():
        counts.setdefault(case.section, Counter())[status] += 1
        if status != "pass":
            console.print(f"{status}: {case}: {reason}")
    table = Table("section", "passed", "skipped", "failed")
    for name, counted in counts.items():
        table.add_row(name, *(str(counted[status]) for status in ("pass", "skip", "fail")))
    console.print(table)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(results(verdicts), indent=1) + "\n", "utf-8")
    console.print(f"written to {FILE}")
    total = sum(counts.values(), Counter[str]())
    failed = f", {total['fail']} failed" if total["fail"] else ""
    console.print(f"{total['pass']} passed, {total['skip']} skipped{failed}", highlight=False)
    return 1 if total["fail"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
