"""Runs the simulation on seeds that no commit before has had: they follow from the hash of HEAD, so
that a failure is found again from the same commit.  fresh_seeds.py SKEIN-SIM SEEDS [POLICY...]
Each policy gets a fifth of the seeds that synchronous steps get."""
import subprocess
import sys

SHARE_OF_POLICY = 5
SPACING = 10 ** 5  # Beyond the fixed seeds, and apart from those of other commits.


def first_seed():
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    digest = found.stdout.strip() or "1"  # Outside a repository always the same.
    return SPACING * (1 + int(digest[:7], 16))


def main():
    program, count, policies = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    first = first_seed()
    failed = 0
    for words, seeds in (([], count), *((["--policy", policy], count // SHARE_OF_POLICY)
                                         for policy in policies)):
        command = [program, "--seeds", f"{first}..{first + seeds - 1}", "--jobs", "2", *words]
        print(" ".join(command), flush=True)
        failed += subprocess.run(command, check=False).returncode != 0
    sys.exit(1 if failed else 0)


main()
