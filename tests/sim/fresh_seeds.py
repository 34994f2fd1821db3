#!/usr/bin/env python3
"""Runs the simulation on seeds that no commit before has had: they follow from the hash of HEAD, so
that a failure is found again from the same commit.  fresh_seeds.py SKEIN-SIM SEEDS [POLICY...]
Each policy, and two jobs on the same machines, get a fifth of the seeds that synchronous steps get.
With "all" instead of policies: all of them, and the mode of third_mode.hpp as many as synchronous steps. At the end it says what went
wrong on purpose in all of them together, by kind."""
import collections
import re
import subprocess
import sys

SHARE_OF_POLICY = 5
SPACING = 10 ** 5  # Beyond the fixed seeds, and apart from those of other commits.
POLICIES = ["tokens", "sdpipe", "auto", "partial_reduce", "prague", "adpsgd", "adpsgd_paired", "overlapped", "ps",
            "ps_async", "ps_bounded", "hetpipe", "grouped_ps"]


def first_seed():
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    digest = found.stdout.strip() or "1"  # Outside a repository always the same.
    return SPACING * (1 + int(digest[:7], 16))


def run(command, totals):
    """Shows what the command prints, and adds up what it counts. True if no seed failed."""
    print(" ".join(command), flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            print(line, end="", flush=True)
            if line.startswith("faults: "):
                for count, kind in re.findall(r"(\d+) ([a-z-]+)", line):
                    totals["faults"][kind] += int(count)
            elif ran := re.match(r"(\d+) seeds, (\d+) events", line):
                totals["seeds"] += int(ran[1])
                totals["events"] += int(ran[2])
    return child.returncode == 0


def main():
    program, count, policies = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    runs = [([], count)]
    if policies == ["all"]:
        policies = POLICIES
        runs.append((["--policy", "third-mode"], count))
    runs += [(["--policy", policy], count // SHARE_OF_POLICY) for policy in policies]
    runs.append((["--shared"], count // SHARE_OF_POLICY))
    first = first_seed()
    totals = {"seeds": 0, "events": 0, "faults": collections.Counter()}
    failed = []
    for words, seeds in runs:
        command = [program, "--seeds", f"{first}..{first + seeds - 1}", "--jobs", "2", *words]
        if not run(command, totals):
            failed.append(" ".join(words) or "synchronous steps")
    faults = ", ".join(f"{count} {kind}" for kind, count in totals["faults"].most_common())
    print(f"all: {totals['seeds']} seeds, {totals['events']} events; faults: {faults}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


main()
