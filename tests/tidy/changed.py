#!/usr/bin/env python3
"""clang-tidy on sources, and each public header compiled alone, for what a change touches.
  changed.py [--build build/release] [--since REVISION] [--all]
Without --since a change is what differs from origin/main, uncommitted files included; where that is
nothing, as in a clone of main, the last COMMITS commits. --all looks at the whole tree: a quarter of
an hour on two cores. The build folder must be configured, and its net library built."""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = ("plans", "gpu", "net", "actors", "cli")
COMMITS = 12
# What two minutes are enough for on two cores: those changed last are looked at.
SOURCES_MAX, HEADERS_MAX = 30, 60
PLUGIN = "gpu/cuda/cuda_ops.cpp"  # Compiled where CUDA is; without it nobody can read its headers.
# What g++ takes and clang does not; precompiled headers would hide an include that is missing.
NOT_FOR_CLANG = {"-fpch-preprocess", "-Winvalid-pch", "-Werror"}


def git(*words):
    return subprocess.run(["git", *words], cwd=SOURCE, capture_output=True, text=True, check=False)


def base_of_change():
    """The revision before the change."""
    base = git("merge-base", "HEAD", "origin/main").stdout.strip()
    head = git("rev-parse", "HEAD").stdout.strip()
    if base and base != head:
        return base
    if git("status", "--porcelain", "--untracked-files=no").stdout.strip():
        return head
    count = int(git("rev-list", "--count", "--first-parent", "HEAD").stdout or 0)
    return f"HEAD~{min(COMMITS, count - 1)}" if count > 1 else None


def last_change(path):
    """For sorting: what is not committed is the newest."""
    if git("status", "--porcelain", "--", path).stdout.strip():
        return time.time()
    return float(git("log", "-1", "--format=%ct", "--", path).stdout.strip() or 0)


def changed_files(since):
    names = git("diff", "--name-only", "--diff-filter=d", since).stdout.split("\n")
    names += git("ls-files", "--others", "--exclude-standard").stdout.split("\n")
    return sorted(filter(is_ours, names), key=lambda path: (-last_change(path), path))


def all_files():
    return sorted(filter(is_ours, git("ls-files").stdout.split("\n")))


def is_ours(path):
    return path.startswith(tuple(folder + "/" for folder in FOLDERS)) and \
        path.endswith((".cpp", ".hpp"))


def at_most(files, limit, what):
    if len(files) > limit:
        print(f"{len(files)} {what}; not looked at, as they were changed earlier than others: "
              f"{' '.join(files[limit:])}")
    return files[:limit]


def plain_command(entry):
    """How a source is compiled, without a cache of compilations and precompiled headers."""
    words, kept = iter(shlex.split(entry["command"])), []
    for word in words:
        if word == "-include":
            next(words)
        elif word not in NOT_FOR_CLANG and not word.startswith("-Wno-"):
            kept.append(word)
    compiler = next(place for place, word in enumerate(kept) if re.search(r"(c|g|clang)\+\+", word))
    return kept[compiler:]


def sources_of(path):
    """Those that a unity source includes, or the one itself."""
    if "/Unity/" not in path:
        return [path]
    with open(path, encoding="utf-8") as file:
        return re.findall(r'^#include "(.*)"', file.read(), re.M)


def read_commands(build):
    """By path relative to the source folder, as if each source were compiled for itself."""
    commands = {}
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            if entry["file"].endswith(".cu"):
                continue  # What nvcc takes; headers beside it are read as those of the folder above.
            words = plain_command(entry)
            for source in sources_of(entry["file"]):
                own = [source if word == entry["file"] else word for word in words]
                commands[os.path.relpath(source, SOURCE)] = dict(entry, file=source, command=shlex.join(own))
    return commands


def run_clang_tidy(folder, path):
    result = subprocess.run(["clang-tidy", "-p", folder, "--quiet", path], cwd=SOURCE, text=True,
                            capture_output=True, check=False)
    return path, re.findall(r"^\S+: (?:error|warning): .*", result.stdout, re.M) or \
        ([result.stderr.strip()] if result.returncode else [])


def compile_alone(flags, path):
    """With all that a header of the same folder sees, and nothing included before it."""
    result = subprocess.run([*flags, "-fsyntax-only", "-x", "c++", "-"], cwd=SOURCE, text=True,
                            input=f'#include "{path}"\n', capture_output=True, check=False)
    return path, [] if result.returncode == 0 else \
        [f"{path} does not compile alone: {result.stderr.strip()[:600]}"]


def flags_for_header(commands, header):
    """Include folders and language of a source beside the header, or in a folder above."""
    folder, sources = os.path.dirname(header), []
    while folder and not sources:
        sources = [path for path in commands if path.startswith(folder + "/")]
        folder = os.path.dirname(folder)
    # Where a folder has plain sources and some for CUDA, these see more.
    command = max((shlex.split(commands[path]["command"]) for path in sorted(sources)), key=len)
    flags, words = [command[0]], iter(command[1:])
    for word in words:
        if word in ("-isystem", "-D", "-I"):
            flags += [word, next(words)]
        elif word.startswith(("-I", "-D", "-std=", "-isystem", "-f", "-m")):
            flags.append(word)
    return flags


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(SOURCE, "build", "release"))
    parser.add_argument("--since")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    if not shutil.which("clang-tidy"):
        sys.exit("there is no clang-tidy; cmake/install-packages.sh test installs it")
    since = None if options.all else options.since or base_of_change()
    files = changed_files(since) if since else all_files()
    print(f"{len(files)} sources and headers " + (f"since {since}" if since else "in all"))
    commands = read_commands(options.build)
    sources = [path for path in files if path in commands]
    headers = [path for path in files if path.endswith(".hpp") and
               (PLUGIN in commands or not path.startswith("gpu/cuda/"))]
    if since:
        sources = at_most(sources, SOURCES_MAX, "sources")
        headers = at_most(headers, HEADERS_MAX, "headers")
    complaints, start = set(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="skein-tidy-") as folder:
        with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
            json.dump(list(commands.values()), file)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = [*pool.map(lambda path: compile_alone(flags_for_header(commands, path), path),
                               headers),
                     *pool.map(lambda path: run_clang_tidy(folder, path), sources)]
    for _, lines in found:
        complaints.update(line.replace(SOURCE + "/", "") for line in lines)
    print("\n".join(sorted(complaints)) or
          f"{len(headers)} headers compile alone, {len(sources)} sources are tidy "
          f"({time.monotonic() - start:.0f} s)")
    sys.exit(1 if complaints else 0)


main()
