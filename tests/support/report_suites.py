#!/usr/bin/env python3
"""Where the time of tests went, and whether one was skipped that could have run.
report_suites.py [--skipped-is-failure] TESTS.XML, which ctest --output-junit writes."""
import collections
import os
import re
import sys
import xml.etree.ElementTree

from running import TOKENIZERS_PYTHON

SLOWEST_SHOWN = 12
NO_GPU = not os.path.exists("/dev/nvidia0")
NO_ROOT = os.geteuid() != 0
# Which tests may be skipped, on which machine, and why nothing can be installed for them.
MAY_SKIP = (
    (r"gpu_cuda_\w+", NO_GPU, "no GPU; the same tests run on an emulated one"),
    (r"e2e_(network|compose)", NO_ROOT, "only root can make networks and use an engine"),
    (r"e2e_prepare", TOKENIZERS_PYTHON is None,
     "Debian has no tokenizers, and cmake/install-python-packages.sh could not get it"),
    (r"oracle_schedule_csv", True, "Debian's PyTorch has no pipelining"),
)


def reason_to_skip(name):
    return next((why for pattern, holds, why in MAY_SKIP
                 if holds and re.fullmatch(pattern, name)), None)


def read_tests(path):
    """Name, seconds and what ctest says of a test that it has not run, for each test."""
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        skipped = case.find("skipped")
        yield (case.get("name"), float(case.get("time")),
               None if skipped is None else skipped.get("message", ""))


def print_times(tests):
    suites = collections.Counter()
    for name, seconds, _ in tests:
        suites[name.split("_")[0]] += seconds
    print("seconds by suite, added up over tests that ran side by side:")
    print("  " + ", ".join(f"{suite} {seconds:.0f}" for suite, seconds in suites.most_common()))
    slowest = sorted(tests, key=lambda test: -test[1])[:SLOWEST_SHOWN]
    print("  slowest: " + ", ".join(f"{name} {seconds:.0f}" for name, seconds, _ in slowest))


def main():
    tests = list(read_tests(sys.argv[-1]))
    print_times(tests)
    complaints = [] if tests else ["no test has run"]
    for name, _, skipped in tests:
        if skipped is None:
            continue
        reason = reason_to_skip(name)
        print(f"skipped: {name}: {reason or 'no reason is known'}")
        if not reason:
            complaints.append(f"{name} was skipped; install what it needs (its output is in "
                              f"{os.path.dirname(sys.argv[-1])}/Testing/Temporary/LastTest.log), "
                              "or say in tests/support/report_suites.py why it cannot run")
    print("\n".join(complaints), end="\n" if complaints else "")
    sys.exit(1 if complaints and "--skipped-is-failure" in sys.argv else 0)


main()
