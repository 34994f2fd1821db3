#!/usr/bin/env python3
"""Finds words that we have given up (STYLE 14), comments that are fragments, and paths in docs and
comments that do not exist. `--self-test` shows that each rule fires, `--count` how much is left."""
import argparse
import ast
import collections
import fnmatch
import os
import re
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENDINGS = (".cpp", ".hpp", ".cu", ".cuh", ".capnp", ".py", ".sh", ".md", ".toml", ".txt", ".html",
           ".cmake", ".yml", ".yaml", ".json")
SKIPPED = ["build", "outputs", ".git", ".cache", "tests/tidy/*", "LICENSE", "docs/glossary.md",
           "tests/compare_weights/*"]  # These speak of what was before.
# A line with a name that is still accepted, or read from files of older runs, says so on it.
ALLOWED_LINE = re.compile(r"Old (key|name|word)")

# What was said before: a pattern, what is said now, and where the same word has another sense.
# A word in camel or snake case is matched piece by piece: `\bcolumn` finds `ColumnLoop`.
GIVEN_UP = {
    "column": (r"\bcolumns?\b", "pipeline replica", [
        "gpu/*", "tests/gpu/*", "bench/gpu/*",        # Of a matrix.
        "cli/pictures/*", "cli/demo/demo_screen.*", "cli/demo/demo_front.*", "cli/compare/words.*",
        "cli/report/live_terminal.*", "cli/report/plan_table.*", "cli/config/profile_file.*",
        "tests/cli/pictures/*", "tests/cli/demo/*",   # Of a terminal, a table or a file.
        "tests/e2e/demo.py", "tests/e2e/cuda_workers.py", "tests/golden/*", "docs/compare.md",
        "actors/coordinator/journal.cpp"]),           # Of a table of SQLite.
    "own pace": (r"\bown pace\b", "local updates", []),
    "segment": (r"\bsegments?\b", "round", [
        "gpu/*", "tests/gpu/*", "bench/gpu/*"]),      # Of a table of tokens, or shared memory.
    "common mean": (r"\bcommon (mean|steps?|average)\b|\bis common\b", "global average", []),
    "combination": (r"(?<!testing::)\bcombin(e|es|ed|ing|ation|ations)\b", "average, mix", [
        "gpu/*", "tests/gpu/*", "net/reduce/*", "tests/net/reduce/*", "bench/reducer_kernels.cpp",
        "bench/policies/large_batch.*"]),             # Of two vectors.
    "lease of samples": (r"\b(sample leases?|leases? samples?|lease pools?|leased)\b|"
                         r"\b(on|init|get|is|set|begin) lease\b|\bstruct lease\b|"
                         r"\bsamples (are|were|is) leased\b|\blease \w+ \d+ :?lease\b",
                         "sample claim", []),
    "holdings": (r"\bholdings\b|\bholding\b(?= [a-z]+ ?[;={(])|\bstruct holding\b|\bholding (step|layers)\b",
                 "state inventory", []),
    "keeper": (r"\bkeepers?\b", "snapshot peer", []),
    "halt": (r"\bhalt(s|ed|ing)?\b(?! on error)", "quiesce", []),
    "passive": (r"\bpassive(ly)?\b", "non-blocking", []),
    "dissolve": (r"\bdissolve[sd]?\b|\bdissolving\b", "abort", []),
    "trouble": (r"\btrouble\b", "peer-failure report", [
        "cli/demo/*", "cli/spot/*", "tests/cli/*", "tests/e2e/*", "cmake/*"]),  # Why something failed.
    "board": (r"\bboards?\b", "rendezvous store", ["tools/*"]),  # TensorBoard.
    "disagreement": (r"\bdisagreements?\b", "consensus distance", []),
    "remedy": (r"\bremed(y|ies|ied)\b", "mitigation", []),
    "draft": (r"\bdrafts?\b", "candidate plan", []),
    "deed": (r"\bdeeds?\b", "fault action", []),
    "run directory": (r"\brun directory\b|\brun directories\b", "run folder", []),
    "put in": (r"\bput in\b(?= ?[(.,;)\]=])|\bput in (by|is|of|us)\b", "contribution", []),
    "rank": (r"\brank (program|command|commands|actor|state|activity|retired|config)\b|\bretire rank\b",
             "replica, pipeline rank", ["tests/gpu/*", "bench/gpu/*", "bench/CMakeLists.txt", "gpu/*",  # Of a group.
                                              "plans/planner/*", "plans/schedule/*"]),
}
# Where a word is still used that is to go: word -> folders or files. The lists are to become empty.
EXCEPTIONS = {}
FRAGMENT_EXCEPTIONS = []
PATH_EXCEPTIONS = []

FINITE = re.compile(
    r"\b(is|are|was|were|be|am|has|have|had|do|does|did|can|could|may|might|must|shall|should|will|"
    r"would|cannot|let|[a-z]+n't|needs?|takes?|took|gives?|gave|makes?|made|gets?|got|goes|go|went|"
    r"comes?|came|says?|said|keeps?|kept|holds?|held|counts?|waits?|waited|runs?|ran|ends?|ended|"
    r"begins?|began|starts?|started|stands?|stood|sends?|sent|reads?|writes?|wrote|adds?|added|"
    r"costs?|means?|meant|shows?|finds?|found|uses?|used|asks?|asked|tells?|told|sees?|saw|"
    r"lasts|lies|lay|moves?|moved|knows?|knew|leaves?|left|works?|worked|becomes?|became|fits?|"
    r"happens?|happened|trains?|trained|train|changes?|changed|computes?|computed|passes|passed|"
    r"returns?|returned|depends?|belongs?|follows?|followed|applies|applied|has|contains?|"
    r"matters?|differs?|ignores?|fails?|failed|tries|tried|gone|stays?|remains?|reaches|reached|"
    r"proves?|wants?|wanted|see|compare|note|skip|pass|set|choose)\b", re.I)
# A verb in such a clause makes no sentence of what stands before it.
CLAUSE = re.compile(r"\b(that|which|who|whose|whom|whomever|where|when|while|as|if|than|what)\b[^,;:.()]*")
FRAGMENT = re.compile(r"(Of|For|As an?|Or (?=[a-z])|Once)\b")
TOP = ("plans", "gpu", "net", "actors", "cli", "tests", "bench", "docs", "examples", "docker", "cmake",
       ".ci")
PATH = re.compile(r"(?<![\w./-])((?:%s)/[\w./*{},-]*[\w*}/])" % "|".join(map(re.escape, TOP)))
TICKED = re.compile(r"`([\w.*{},-]+/[\w./*{},-]*)(?=[`\s])")


def pieces(text):
    """The text in lower case, with identifiers in camel and snake case taken apart."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+", " ", text)
    return re.sub(r"\bk (?=[A-Z])", " ", text).lower()


PATTERNS = {word: re.compile(pattern) for word, (pattern, _, _) in GIVEN_UP.items()}
ANY = re.compile("|".join(pattern for pattern, _, _ in GIVEN_UP.values()))


def matches(path, patterns):
    return any(fnmatch.fnmatch(path, each) for each in patterns)


def check_words(path, text, exceptions):
    if not ANY.search(pieces(text + " " + path)):
        return
    lines = [(0, path), *enumerate(text.splitlines(), 1)]
    for number, line in lines:
        if ALLOWED_LINE.search(line):
            continue
        plain = pieces(line)
        if not ANY.search(plain):
            continue
        for word, (_, instead, elsewhere) in GIVEN_UP.items():
            if not PATTERNS[word].search(plain) or matches(path, elsewhere):
                continue
            if not matches(path, exceptions.get(word, ())):
                where = f"{path}:{number}" if number else f"{path}: its name"
                yield word, f"{where}: '{word}': say {instead}"


def docstrings(text):
    """(line, text) of every docstring of a Python file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            written = ast.get_docstring(node)
            if written:
                yield node.body[0].lineno, " ".join(written.split())


def comments(path, text):
    """(line, text) of every comment; one that goes on over lines is one."""
    if not path.endswith((".cpp", ".hpp", ".cu", ".cuh", ".capnp", ".py", ".cmake", "CMakeLists.txt")):
        return
    mark = re.compile(r"^(.*?)///?<?\s*(.*)$" if path.endswith(("pp", ".cu", ".cuh")) else
                      r"^(.*?)(?<![\w\"'])#\s+(.*)$")
    if path.endswith(".py"):
        yield from docstrings(text)
    begun, block, was_whole = 0, [], False
    for number, line in enumerate(text.splitlines() + [""], 1):
        found = mark.match(line)
        if found and (found.group(1).count('"') % 2 or found.group(1).rstrip().endswith(":")):
            found = None  # Within a text, such as an address.
        is_whole = bool(found) and not found.group(1).strip()
        # A comment behind code goes on in the next line only if nothing else stands there.
        if block and not (is_whole and (was_whole or found.start(2) >= column)):
            yield begun, " ".join(block)
            block = []
        if found:
            if not block:
                begun, column, was_whole = number, found.start(2), is_whole
            block.append(found.group(2).strip())


def check_fragments(path, text, exceptions):
    if matches(path, exceptions):
        return
    for number, comment in comments(path, text):
        # The first sentence. What begins with "Of" is over at a colon: "Of X: Y is Z" leans as well.
        stops = "[.:;]" if comment.startswith("Of") else "[.]"
        sentence = re.split(rf"(?<=[a-z0-9)`\"]){stops}(?:\s|$)", comment, maxsplit=1)[0]
        if FRAGMENT.match(sentence) and not FINITE.search(CLAUSE.sub(" ", sentence)):
            yield f"{path}:{number}: a fragment, which leans on the line before: '{comment[:70]}'"


def expand(path):
    """`a/{b,c}.cpp` as a/b.cpp and a/c.cpp."""
    found = re.match(r"(.*?)\{([^{}]*)\}(.*)", path)
    if not found:
        return [path]
    return [each for middle in found.group(2).split(",")
            for each in expand(found.group(1) + middle + found.group(3))]


class Paths:
    """What exists in the tree."""

    def __init__(self, files):
        self.files = set(files)
        self.folders = {""}
        for path in files:
            parts = path.split("/")
            self.folders |= {"/".join(parts[:count]) for count in range(1, len(parts))}
        # Without its ending a path means all files of that name.
        self.stems = {re.sub(r"\.\w+$", "", path) for path in files}

    def has(self, path):
        path = path.rstrip("/")
        if "*" in path:
            return any(fnmatch.fnmatch(each, path) for each in self.files | self.folders | self.stems)
        return path in self.files or path in self.folders or path in self.stems


def check_paths(path, text, paths, exceptions):
    if matches(path, exceptions):
        return
    is_page = path.endswith(".md")
    folder = os.path.dirname(path)
    lines = enumerate(text.splitlines(), 1) if is_page else comments(path, text)
    for number, line in lines:
        named = {each.rstrip(".,-") for each in PATH.findall(line)}
        if is_page:
            # From the page's own folder, if that has such a part.
            own = {each.rstrip(".,-") for each in TICKED.findall(line)}
            named |= {each for each in own
                      if os.path.join(folder, each.split("/")[0]).lstrip("/") in paths.folders
                      or each.split("/")[0] in TOP}
        for each in sorted(named):
            for one in expand(each):
                # Pages about tests name them from tests/ on.
                near = [os.path.normpath(os.path.join(each, one)) for each in (folder, "tests")]
                if not paths.has(one) and not any(map(paths.has, near)):
                    yield f"{path}:{number}: no {one} in the tree"


def sources(source):
    found = []
    for root, folders, names in os.walk(source):
        place = os.path.relpath(root, source)
        place = "" if place == "." else place + "/"
        folders[:] = sorted(each for each in folders if not matches(place + each, SKIPPED))
        found += [place + name for name in sorted(names)]
    return found


def check_tree(source, words=None, fragments=None, paths=None):
    """Complaints by kind; the lists of exceptions are those above unless others are given."""
    words = EXCEPTIONS if words is None else words
    fragments = FRAGMENT_EXCEPTIONS if fragments is None else fragments
    paths = PATH_EXCEPTIONS if paths is None else paths
    files = sources(source)
    tree = Paths(files)
    found = collections.defaultdict(list)
    for path in files:
        if not path.endswith(ENDINGS) and "." in os.path.basename(path) or matches(path, SKIPPED):
            continue
        try:
            with open(os.path.join(source, path), encoding="utf-8") as file:
                text = file.read()
        except UnicodeDecodeError:
            continue
        for word, complaint in check_words(path, text, words):
            found[word].append(complaint)
        found["fragments"] += check_fragments(path, text, fragments)
        found["paths"] += check_paths(path, text, tree, paths)
    return found


def self_test():
    """Complaints about rules that do not fire, or fire where nothing is wrong."""
    said = {
        "column": ["class ColumnLoop {", "// A column of its own", "column_samples_ = 1;"],
        "segment": ["sync.segment_steps", "kSegmentMax"], "own pace": ["of their own pace"],
        "common mean": ["the common mean", "is_common_ = true"], "halt": ["on_halted()", "// Halts."],
        "combination": ["Combination c;", "they combine"], "holdings": ["getHoldings()"],
        "lease of samples": ["SampleLease lease;", "LeaseSamples{}", "lease_pool.hpp"],
        "keeper": ["SnapshotKeepers k;"], "passive": ["is_passive"], "dissolve": ["kDissolved"],
        "trouble": ["isTrouble()"], "board": ["RendezvousBoard b;"], "draft": ["PlanDraft d;"],
        "disagreement": ["its disagreement is"], "remedy": ["Remedies"], "deed": ["DemoDeed"],
        "put in": ["put_in(start);"], "run directory": ["// Its run directory."], "rank": ["RankProgram p;"]}
    silent = [f"'{line}'" for word, lines in said.items() for line in lines
              if word not in [found for found, _ in check_words("plans/a.cpp", line, {})]]
    silent += [f"no rule for {word}" for word in GIVEN_UP.keys() - said.keys()]
    silent += [f"'{text}' is fine, but: {found}" for text in (
        "the keyboard's halt_on_error=1", "workers that stay within their lease", "rank 3 of a group",
        "a worker's lease", "whoever is holding the lock", "segmentation", "they put into it",
        "heartbeat leases", "a column  // Old name.") for _, found in check_words("plans/a.cpp", text, {})]
    for code, count in (("int a;  // Of it.\n", 1), ("/// As a group.\nint b;\n", 1),
                        ("// Of a worker that has\n// no plan.\n", 1), ("// For all.\n// Is b.\n", 1),
                        ("int c;  // For a moment it waits.\n", 0), ("// Often.\n", 0),
                        ("x = 1;  // Of the plan.\nint d;  // Once all are there.\n", 1)):
        if len(list(check_fragments("plans/a.cpp", code, []))) != count:
            silent.append(f"not {count} fragments in {code!r}")
    if len(list(check_fragments("tests/a.py", 'def f():\n    """Of the plan."""\n', []))) != 1:
        silent.append("no fragment in a docstring")
    tree = Paths(["plans/plan/plan.hpp", "docs/a.md", "tests/e2e/b.py"])
    for page, text, count in (("docs/a.md", "`plans/plan/plan.hpp`, `plans/plan`, plans/plan/plan", 0),
                              ("docs/a.md", "see plans/gone.hpp and `actors/`", 2),
                              ("tests/README.md", "`e2e/b.py`, `e2e/{b,c}.py` and/or `x/y`", 1),
                              ("plans/c.cpp", "// As plans/gone.cpp says.", 1),
                              ("plans/c.cpp", 'f("plans/gone.cpp");', 0)):
        if len(list(check_paths(page, text, tree, []))) != count:
            silent.append(f"not {count} dead paths in {text!r}")
    return ["words.py self-test failed: " + each for each in silent]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default=SOURCE)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--count", action="store_true", help="what is left, without exceptions")
    parser.add_argument("--list", metavar="KIND", help="all of one kind, without exceptions")
    options = parser.parse_args()
    complaints = self_test()
    if options.count or options.list:
        found = check_tree(options.source, {}, [], [])
        for kind in sorted(found):
            places = collections.Counter("/".join(each.split(":")[0].split("/")[:-1]) or each.split(":")[0]
                                         for each in found[kind])
            if options.count and found[kind]:
                print(f"{kind}: {len(found[kind])} in " +
                      ", ".join(f"{place} {count}" for place, count in sorted(places.items())))
        complaints += found[options.list] if options.list else []
    elif not options.self_test:
        complaints += [each for kind in check_tree(options.source).values() for each in kind]
    print("\n".join(complaints) or "no complaints")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
