#!/usr/bin/env python3
"""Checks that decisions lie where a stranger would look: two_guesses.toml has questions with two
guesses each, written down before any file moved, and `found`, the file that has the answer. Fails if a
file is not there, or if fewer than eighteen of twenty lie under one of their guesses."""
import fnmatch
import os
import sys
import tomllib

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MISSES_MAX = 2  # Of twenty.
# Questions whose answer has no lasting place yet, by their number from 1; is to become empty.
PENDING = set()


def lies_under(path, guess):
    """A guess is a folder, or the beginning of a file's name with a star."""
    return path.startswith(guess) if guess.endswith("/") else fnmatch.fnmatch(path, guess)


def judge(questions, exists, pending):
    """(complaints, number of answers under the first guess, under the second)."""
    complaints, hits, missed = [], [0, 0], []
    for number, each in enumerate(questions, 1):
        path = each.get("found")
        if path is None:
            if number not in pending:
                complaints.append(f"question {number} has no answer: {each['ask']}")
            continue
        if not exists(path):
            complaints.append(f"question {number}: there is no {path}")
        under = [place for place, guess in enumerate(each["guesses"]) if lies_under(path, guess)]
        if under:
            hits[under[0]] += 1
        else:
            missed.append(f"question {number}: {path} is under neither of {each['guesses']}")
    if len(missed) > MISSES_MAX:
        complaints += missed
    return complaints, hits


def self_test():
    questions = [{"ask": "a", "guesses": ["plans/a/", "plans/b/c*"], "found": path} for path in
                 ("plans/a/x.cpp", "plans/b/cd.cpp", "plans/b/d.cpp", "plans/ab/x.cpp")]
    complaints, hits = judge(questions, lambda path: True, ())
    assert (complaints, hits) == ([], [1, 1]), (complaints, hits)
    assert len(judge(questions, lambda path: "cd" not in path, ())[0]) == 1
    assert len(judge(questions + questions, lambda path: True, ())[0]) == 4
    assert len(judge([{"ask": "a", "guesses": []}], lambda path: True, ())[0]) == 1
    assert not judge([{"ask": "a", "guesses": []}], lambda path: True, {1})[0]


def main():
    self_test()
    with open(os.path.join(SOURCE, "tests", "tidy", "two_guesses.toml"), "rb") as file:
        questions = tomllib.load(file)["question"]
    complaints, hits = judge(
        questions, lambda path: os.path.isfile(os.path.join(SOURCE, path)), PENDING)
    if len(questions) != 20:
        complaints.append(f"{len(questions)} questions instead of 20")
    print("\n".join(complaints) or f"{hits[0]} found with the first guess, {hits[1]} with the "
                                   f"second, of {len(questions)}; {len(PENDING)} have no place yet")
    sys.exit(1 if complaints else 0)


main()
