"""``nox -s conformance [-- SECTION …]``: run the suite, or some of its sections."""

from __future__ import annotations

import sys
from collections import Counter

from rich.console import Console
from rich.table import Table

from tests.conformance.run import select, verdict_of


def main(names: list[str]) -> int:
    """Print a table by section; the last line is ``N passed, M skipped``."""
    console = Console()
    table = Table("section", "passed", "skipped", "failed")
    total: Counter[str] = Counter()
    for name, cases in select(names):
        counted: Counter[str] = Counter()
        for case in cases:
            status, reason = verdict_of(case)
            counted[status] += 1
            if status != "pass":
                console.print(f"{status}: {case}: {reason}")
        table.add_row(name, *(str(counted[status]) for status in ("pass", "skip", "fail")))
        total += counted
    console.print(table)
    failed = f", {total['fail']} failed" if total["fail"] else ""
    console.print(f"{total['pass']} passed, {total['skip']} skipped{failed}", highlight=False)
    return 1 if total["fail"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
