#!/usr/bin/env python3
"""Checks the rules of the house that a compiler does not; those about words are in words.py.
`--self-test` shows that each rule fires."""
import os
import re
import shutil
import subprocess
import sys

import words

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = ["plans", "gpu", "net", "actors", "cli"]
CODE_FOLDERS = FOLDERS + ["tests", "bench", "examples"]
MAY_INCLUDE = {"plans": {"plans"}, "gpu": {"gpu", "plans"}, "net": {"net", "plans"},
               "actors": {"actors", "gpu", "net", "plans"}, "cli": set(FOLDERS)}
LIBRARIES = {  # Header pattern: folders that may include it.
    r"caf/": {"actors", "cli", "tests"},
    r"(capnp|kj)/": {"net", "tests", "bench"},
    r"gloo/": {"net"},
    r"oneapi/|dnnl|omp\.h": {"gpu"},
    r"cuda_|cublas|nccl|vector_functions\.h": {"gpu", "tests"},
    r"sqlite3\.h": {"actors", "tests"},
    r"toml\+\+/|CLI/|httplib": {"cli"},
    r"nlohmann/": {"gpu", "cli", "tests"},
    r"(mutex|thread|atomic|chrono|fstream|iostream|condition_variable|random)$":
        set(CODE_FOLDERS) - {"plans"},
    r"(sys/|unistd|fcntl|time)\.?": set(CODE_FOLDERS) - {"plans"},
}
BANNED = {  # Pattern in code without comments and strings: folders where it is banned.
    r"\bnew\s+[A-Za-z_:<(]": set(FOLDERS),
    r"\bdelete\s+[a-z]|\bdelete\[\]": set(FOLDERS),
    r"\[=\]": set(CODE_FOLDERS),
    r"\bthrow\b": set(FOLDERS),
    r"\bsleep_for\b|\busleep\b": {"plans", "actors", "gpu", "net"},
    r"unordered_(map|set)": {"plans"},
    r"\bFIXME\b": set(CODE_FOLDERS),
}
# A line that breaks a rule for a reason says so on it.
ALLOWED = re.compile(r"// Private\.|// Constructor is private\.|shared_ptr<\w+>\(new |CheckFailure"
                     r"|plans/base/check")
ALLOWED_FILES = {"plans/base/check.hpp": {"iostream"}}
BANNED_NAMES = re.compile(r"(^|_)(utils?|helpers?|manager|common|misc|v2|new|fast)(_|\.|$)")
LINE_MAX, README_LINES_MAX = 100, 120


def strip_comments(line):
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    return re.sub(r"//.*|^\s*\*.*|^\s*///.*", "", line)


def check_file(path, text):
    """Complaints about one source file; `path` is relative to the source folder."""
    folder = path.split("/")[0]
    complaints = []
    for number, line in enumerate(text.splitlines(), 1):
        def complain(what):
            complaints.append(f"{path}:{number}: {what}")
        if len(line) > LINE_MAX:
            complain(f"{len(line)} columns, at most {LINE_MAX}")
        if "\t" in line:
            complain("a tab")
        include = re.match(r'\s*#include ["<]([^">]+)[">]', line)
        if include:
            header = include.group(1)
            top = header.split("/")[0]
            if folder in MAY_INCLUDE and top in FOLDERS and top not in MAY_INCLUDE[folder]:
                complain(f"{folder}/ must not include {header}")
            if header in ALLOWED_FILES.get(path, ()):
                continue
            for pattern, allowed in LIBRARIES.items():
                if re.match(pattern, header) and folder not in allowed:
                    complain(f"{folder}/ must not include {header}")
        if ALLOWED.search(line):
            continue
        code = strip_comments(line)
        for pattern, folders in BANNED.items():
            if folder in folders and re.search(pattern, code if "FIXME" not in pattern else line):
                complain(f"banned here: {pattern}")
    if path.endswith(".hpp") and "#pragma once" not in text:
        complaints.append(f"{path}: no #pragma once")
    # An actor that fails alone would leave its process up and deaf.
    actors = len(re.findall(r"::behavior_type \w+\(", text)) if path.endswith(".cpp") else 0
    if folder == "actors" and actors > text.count("end_process_on_failure(*self);"):
        complaints.append(f"{path}: an actor without end_process_on_failure")
    if BANNED_NAMES.search(os.path.basename(path)):
        complaints.append(f"{path}: a name that says nothing")
    return complaints


def sources():
    for folder in CODE_FOLDERS:
        for root, _, files in os.walk(os.path.join(SOURCE, folder)):
            for name in sorted(files):
                if name.endswith((".cpp", ".hpp", ".cu", ".cuh")):
                    yield os.path.relpath(os.path.join(root, name), SOURCE)


def self_test():
    bad = {"plans/a.cpp": ['#include "gpu/device.hpp"', "#include <chrono>", "auto f = [=] {};",
                           "int* p = new int;", "throw 1;", "std::unordered_map<int, int> m;",
                           "x" * 101, "\tint i;", "// FIXME later"],
           "gpu/b.cpp": ['#include "net/control/wire.hpp"', "#include <capnp/message.h>", "delete p;"],
           "actors/c.cpp": ["usleep(3);", "#include <toml++/toml.h>",
                            "Worker::behavior_type worker(Worker::pointer self) {"]}
    silent = [f"{path}: {line[:40]}" for path, lines in bad.items() for line in lines
              if not check_file(path, line + "\n")]
    silent += ["no pragma"] if not check_file("gpu/d.hpp", "int i;\n") else []
    silent += ["bad name"] if not check_file("gpu/string_utils.cpp", "int i;\n") else []
    good = '#include "plans/plan/plan.hpp"\n// A new idea: delete it, throw it away.\nint renew = 3;\n'
    silent += ["good code"] if check_file("gpu/e.cpp", good) else []
    for what in silent:
        print("self-test failed:", what)
    return silent


def main():
    if "--self-test" in sys.argv:
        sys.exit(1 if self_test() else 0)
    complaints = self_test()
    paths = list(sources())
    for path in paths:
        with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
            complaints += check_file(path, file.read())
    for folder in FOLDERS + ["tests", "bench"]:
        readme = os.path.join(SOURCE, folder, "README.md")
        if not os.path.exists(readme):
            complaints.append(f"{folder}/ has no README.md")
        elif sum(1 for _ in open(readme, encoding="utf-8")) > README_LINES_MAX:
            complaints.append(f"{folder}/README.md has more than {README_LINES_MAX} lines")
    complaints += words.self_test()
    complaints += [each for kind in words.check_tree(SOURCE).values() for each in kind]
    if shutil.which("clang-format"):
        result = subprocess.run(["clang-format", "--dry-run", "-Werror", *paths], cwd=SOURCE,
                                capture_output=True, text=True, check=False)
        complaints += re.findall(r"^\S+: error: .*", result.stderr, re.M)
    else:
        print("clang-format is not installed: formatting was not checked")
    print("\n".join(complaints) or f"{len(paths)} files are tidy")
    sys.exit(1 if complaints else 0)


main()
