"""Runs a program and compares its output with the block behind "prints" in its page, or the beginning
of its output with the block behind "begins with":
expected_output.py README.md PROGRAM [ARGUMENT ...]"""
import re
import subprocess
import sys


def main():
    page, *command = sys.argv[1:]
    with open(page, encoding="utf-8") as file:
        blocks = re.findall(r"(prints|begins with)[^\n]*\n+```\n(.*?)```", file.read(), re.DOTALL)
    if len(blocks) != 1:
        sys.exit(f"{page}: {len(blocks)} blocks behind \"prints\" or \"begins with\", expected one")
    (verb, expected), = blocks
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if verb == "begins with":
        printed = printed[:len(expected)]
    if printed != expected:
        sys.exit(f"{page} says\n{expected}\nand the program prints\n{printed}")


main()
