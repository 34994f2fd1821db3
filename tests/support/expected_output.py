"""Runs a program and compares its output with the block behind "prints" in its page:
expected_output.py README.md PROGRAM [ARGUMENT ...]"""
import re
import subprocess
import sys


def main():
    page, *command = sys.argv[1:]
    with open(page, encoding="utf-8") as file:
        blocks = re.findall(r"prints[^\n]*\n+```\n(.*?)```", file.read(), re.DOTALL)
    if len(blocks) != 1:
        sys.exit(f"{page}: {len(blocks)} blocks behind \"prints\", expected one")
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if printed != blocks[0]:
        sys.exit(f"{page} says\n{blocks[0]}\nand the program prints\n{printed}")


main()
