"""Prints a table of test suites from their JUnit files: tests, seconds, failures, and skips by reason.

python .ci/summary.py torch.xml jax.xml ...
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

print(f"{'suite':<12}{'tests':>8}{'seconds':>9}{'failed':>8}{'skipped':>9}")
for path in map(Path, sys.argv[1:]):
    if not path.exists():
        print(f"{path.stem:<12} did not end")
        continue
    suite = ElementTree.parse(path).getroot()[0]
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = counts["failures"] + counts["errors"]
    seconds = float(suite.get("time", 0))
    print(f"{path.stem:<12}{counts['tests']:>8}{seconds:>9.0f}{failed:>8}{counts['skipped']:>9}")
    reasons = Counter(skip.get("message") for skip in suite.iter("skipped"))
    for reason, number in reasons.most_common():
        print(f"{'':<12}{number:>8} skipped: {reason}")
