#!/usr/bin/env python3
"""Which source files touch which field of a class, and a check: the members of a class are defined in
one source file. Reads the code with regular expressions, in the shape that clang-format leaves.

    tests/tidy/fields.py                       the check, of every class in plans/ and actors/
    tests/tidy/fields.py --table Coordination  a table of field x file; several names may be given
    tests/tidy/fields.py --summary             one line for each of the classes that hold the core
    tests/tidy/fields.py --source FOLDER ...   the same for another checkout
"""
import argparse
import collections
import os
import re
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = ("plans", "actors")
# Classes whose members are still spread over files; the list is to become empty.
EXCEPTIONS = set()
# What --summary shows, before and after the core was taken apart; a name that is gone is left out.
CORE = ["Coordination", "CommitLoop", "ColumnLoop", "PlanChange", "Membership", "CommitLog",
        "SynchronousSteps", "LocalUpdates", "StageSync", "RankProgram", "PipelinePass", "StepProgram",
        "LocalProgram", "AsyncProgram", "CoordinatorState", "StageState", "RankState", "HeldReplica", "ReplicaState",
        "DeviceState", "WorkerState"]

Class = collections.namedtuple("Class", "folder name header line fields methods")
WORD = re.compile(r"[A-Za-z_]\w*")


def blank(text):
    """The code without comments, texts and preprocessor lines; every line stays where it is."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r'R"\((.|\n)*?\)"|//[^\n]*|/\*(.|\n)*?\*/|"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])+\'',
                  spaces, text)
    return re.sub(r"^#.*(\\\n.*)*", spaces, text, flags=re.M)


def closing(text, begin, pair="{}"):
    """Where the bracket that opens at `begin` is closed; the end of the text if it never is."""
    depth = 0
    for place in range(begin, len(text)):
        depth += (text[place] == pair[0]) - (text[place] == pair[1])
        if depth == 0:
            return place
    return len(text)


def without_nested(body):
    """What stands directly in a class's body: bodies of functions and nested types become `{}`."""
    pieces, place = [], 0
    while place < len(body):
        if body[place] == "{":
            end = closing(body, place)
            pieces.append("{}")
            # A body ends a declaration of its own: `f() {}` has no semicolon.
            pieces.append("" if body[end + 1:].lstrip().startswith((";", ",", "{")) else ";")
            place = end + 1
        else:
            pieces.append(body[place])
            place += 1
    return "".join(pieces)


def without_angles(text):
    while True:
        shorter = re.sub(r"<[^<>]*>", "", text)
        if shorter == text:
            return text
        text = shorter


def field_of(declaration):
    """The names of the fields that a declaration in a class's body makes."""
    text = re.sub(r"\b(public|private|protected)\s*:", " ", declaration)
    text = re.sub(r"\boperator\s*[^\w\s(]+", "operator", text).strip()
    text = re.sub(r"\[\[\w+\]\]|\bmutable\b", " ", text)
    skipped = r"\s*(using|typedef|friend|enum|class|struct|union|static|template|namespace)\b"
    if not text or re.match(skipped, text):
        return []
    text = without_angles(text)
    text = re.sub(r"\{\}\s*$", "", re.sub(r"=(?!=).*", "", text, flags=re.S))
    if "(" in text:
        return []  # A function.
    parts = [re.sub(r"\{\}|\[[^\]]*\]", "", part).strip() for part in text.split(",")]
    words = WORD.findall(parts[0])
    if len(words) < 2 or words[-1] in ("const", "default", "delete", "override"):
        return []
    return [words[-1]] + [WORD.findall(part)[-1] for part in parts[1:] if WORD.search(part)]


def methods_of(body):
    """Names of the functions that stand directly in a class's body."""
    names = set()
    for declaration in without_nested(body).split(";"):
        text = re.sub(r"\b(public|private|protected)\s*:|\btemplate\s*<[^;]*?>\s(?=\w)", " ", declaration)
        text = without_angles(re.sub(r"\boperator\s*[^\w\s(]+", "operator", text))
        match = re.match(r"[^={}]*?(~?\b[A-Za-z_]\w*)\s*\(", text)
        if match and not re.match(r"\s*(friend|using)\b", text):
            names.add(match.group(1))
    return names


def classes_of(path, text):
    """Every class of a file, the nested ones as Outer::Inner."""
    code = blank(text)
    found = []
    opening = re.compile(r"\b(class|struct)\s+(?:\[\[\w+\]\]\s*)?([A-Za-z_]\w*(?:::\w+)*)"
                         r"(?:\s+final)?\s*(?::(?!:)[^;{}()]*)?\{")
    spans = []
    for match in opening.finditer(code):
        if code[:match.start()].rstrip().endswith("enum"):
            continue
        begin = match.end() - 1
        end = closing(code, begin)
        outer = [name for name, first, last in spans if first < begin and end < last]
        name = "::".join(outer[-1:] + [match.group(2)])
        spans.append((name, begin, end))
        body = code[begin + 1:end]
        fields = [field for each in without_nested(body).split(";") for field in field_of(each)]
        line = code.count("\n", 0, match.start()) + 1
        found.append(Class(path.split("/")[0], name, path, line, fields, methods_of(body)))
    return found


def definitions_of(text):
    """(class, where the function's body begins and ends) of every member that is defined out of line:
    such a definition begins in the first column, a call never does."""
    code = blank(text)
    start = re.compile(r"^(?=\S)(?![#}/])(?:[^\n;{}()=]*?[\s&*])?((?:\w+(?:<[^<>\n]*>)?::)+)"
                       r"(?:~?\w+|operator\s*[^\s\w(]+|operator\s*\(\))\s*\(", re.M)
    for match in start.finditer(code):
        parts = re.sub(r"<[^<>]*>", "", match.group(1)).rstrip(":").split("::")
        after = closing(code, match.end() - 1, "()")
        # Up to the body: initialisers may have braces of their own, so find the first brace that
        # closes in the first column.
        end = re.compile(r"^\}|\}\s*$", re.M)
        brace = code.find("{", after)
        semicolon = code.find(";", after)
        if brace < 0 or 0 <= semicolon < brace:
            continue  # A declaration, or a call within a macro.
        stop = end.search(code, brace)
        line_end = code.find("\n", brace)
        if "}" in code[brace:line_end] and code[:line_end].rstrip().endswith("}"):
            last = line_end
        else:
            first_column = re.compile(r"^\}", re.M).search(code, brace)
            last = first_column.start() if first_column else (stop.end() if stop else len(code))
        yield parts, match.start(), last


class Tree:
    """All classes of plans/ and actors/, and where their members are."""

    def __init__(self, source):
        self.texts = {}
        for folder in FOLDERS:
            for root, _, names in os.walk(os.path.join(source, folder)):
                for name in sorted(names):
                    if name.endswith((".cpp", ".hpp", ".cu", ".cuh")):
                        path = os.path.relpath(os.path.join(root, name), source)
                        with open(os.path.join(source, path), encoding="utf-8") as file:
                            self.texts[path] = file.read()
        self.build()

    def build(self):
        self.classes = {}
        local = collections.defaultdict(set)  # Classes that a source file keeps to itself.
        for path, text in sorted(self.texts.items()):
            for each in classes_of(path, text):
                if path.endswith(".hpp"):
                    self.classes[each.folder, each.name] = each
                else:
                    local[path].add(each.name)
        # (folder, class) -> {file: [code of its members there]}
        self.members = collections.defaultdict(lambda: collections.defaultdict(list))
        for path, text in sorted(self.texts.items()):
            folder = path.split("/")[0]
            for parts, begin, end in definitions_of(text):
                name = self.known(folder, parts)
                if name and name not in local[path]:
                    self.members[folder, name][path].append(blank(text)[begin:end])

    def known(self, folder, parts):
        for first in range(len(parts)):
            name = "::".join(parts[first:])
            if (folder, name) in self.classes:
                return name
        return None

    def spread(self):
        """{class: files} of every class whose members are defined in several source files."""
        found = {}
        for (_, name), files in self.members.items():
            sources = sorted(path for path in files if not path.endswith(".hpp"))
            if len(sources) > 1:
                found[name] = sources
        return found

    def find(self, name):
        return next((each for each in self.classes.values() if each.name == name), None)

    def touched(self, cls):
        """{field: [source files]}: files whose code of the class's members names the field, and, of
        a struct, files that reach it through a dot or an arrow and name the class or its header."""
        table = {}
        files = self.members[cls.folder, cls.name]
        for field in cls.fields:
            word = re.compile(rf"\b{field}\b")
            touching = {path for path, bodies in files.items() if any(map(word.search, bodies))}
            if not field.endswith("_"):
                reach = re.compile(rf"(?:\.|->){field}\b(?!\s*\()")
                names = re.compile(rf"\b{cls.name.split('::')[-1]}\b|\"{re.escape(cls.header)}\"")
                touching |= {path for path, text in self.texts.items()
                             if path.endswith(".cpp") and names.search(text) and
                             reach.search(blank(text))}
            table[field] = sorted(touching)
        return table


def print_table(tree, cls):
    table = tree.touched(cls)
    files = sorted(set(sum(table.values(), [])))
    defined = sorted(path for path in tree.members[cls.folder, cls.name])
    print(f"\n{cls.name} ({cls.header}:{cls.line}): {len(cls.fields)} fields, members defined in "
          f"{len(defined)} source files")
    for number, path in enumerate(files):
        mark = "" if path in defined else "  (defines no member)"
        print(f"  {chr(ord('a') + number % 26)}  {path}{mark}")
    width = max(map(len, cls.fields), default=0)
    for field in cls.fields:
        cells = " ".join(chr(ord("a") + number % 26) if path in table[field] else "."
                         for number, path in enumerate(files))
        print(f"  {field:{width}}  {cells}  {len(table[field])}")


def print_summary(tree):
    print("class                 fields  methods  files  fields that one file alone touches")
    for name in CORE:
        cls = tree.find(name)
        if cls is None:
            continue
        table = tree.touched(cls)
        files = [path for path in tree.members[cls.folder, name] if path.endswith(".cpp")]
        alone = collections.Counter(os.path.basename(touching[0]) for touching in table.values()
                                    if len(touching) == 1)
        text = ", ".join(f"{count} {path}" for path, count in alone.most_common(4))
        print(f"{name:20}  {len(cls.fields):6}  {len(cls.methods):7}  {len(files):5}  {text}")


def self_test():
    """Complaints if the parser does not see what is to be seen."""
    header = """
namespace a {
/// A class Fake { int no_; }
class Pot final : public Base {
 public:
  explicit Pot(std::map<int, int> tea) : tea_(std::move(tea)) {}
  int pour(int cups) const;
  bool is_full() const { return fill_ > 0; }
  bool operator==(const Pot&) const = default;
  struct Lid { int weight = 0; void lift(); };
 private:
  static constexpr int kMax = 3;
  std::map<int, std::vector<int>> tea_, milk_;
  std::function<void(int)> on_done_;
  int fill_ = make(1, 2);
  Options options_{.a = 1};
};
struct Cup { double litres = 0; };
}
"""
    one = 'namespace a {\nint Pot::pour(int cups) const {\n  fill_ = cups;\n  return b::tea(1);\n}\n}\n'
    two = "namespace a {\nvoid Pot::Lid::lift() { weight = 1; }\nPot::Pot(int x)\n    : tea_{x} {\n}\n" \
          "static int y = Pot::count();\n}\n"
    tree = Tree.__new__(Tree)
    tree.texts = {"plans/pot.hpp": header, "plans/one.cpp": one, "plans/two.cpp": two}
    tree.build()
    pot = tree.find("Pot")
    complaints = []

    def expect(what, got, wanted):
        if got != wanted:
            complaints.append(f"fields.py self-test failed: {what}: {got} instead of {wanted}")
    expect("classes", sorted(name for _, name in tree.classes), ["Cup", "Pot", "Pot::Lid"])
    expect("fields", pot and pot.fields, ["tea_", "milk_", "on_done_", "fill_", "options_"])
    expect("methods", pot and sorted(pot.methods), ["Pot", "is_full", "operator", "pour"])
    expect("spread", tree.spread(), {"Pot": ["plans/one.cpp", "plans/two.cpp"]})
    expect("touched", tree.touched(pot)["fill_"], ["plans/one.cpp"])
    expect("initialised", tree.touched(pot)["tea_"], ["plans/two.cpp"])
    expect("nested", sorted(tree.members["plans", "Pot::Lid"]), ["plans/two.cpp"])
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=SOURCE)
    parser.add_argument("--table", nargs="+", metavar="CLASS")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    complaints = self_test()
    tree = Tree(options.source)
    if options.summary:
        print_summary(tree)
    for name in options.table or ():
        cls = tree.find(name)
        if cls:
            print_table(tree, cls)
        else:
            complaints.append(f"no class {name} in a header of {' and '.join(FOLDERS)}")
    if not options.summary and not options.table:
        spread = tree.spread()
        complaints += [f"{name}: members are defined in {len(files)} source files: {' '.join(files)}"
                       for name, files in sorted(spread.items()) if name not in EXCEPTIONS]
        for name in sorted(EXCEPTIONS - spread.keys()):
            print(f"{name} needs no exception any more")
        if not complaints:
            print(f"{len(tree.classes)} classes, {len(EXCEPTIONS)} exceptions")
    print("\n".join(complaints), end="\n" if complaints else "")
    sys.exit(1 if complaints else 0)


main()
