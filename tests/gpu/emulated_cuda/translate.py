#!/usr/bin/env python3
"""Turns a CUDA source into C++ for the emulator: translate.py KERNELS.cu OUT.cpp

Kernels stay as they are. Launches become calls, dynamic shared memory a pointer; the rest is
defined by emulator.hpp, which is included first."""
import re
import sys


def closing(text, at):
    """Position behind the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError("no closing parenthesis")


def translate(text):
    text = re.sub(r"extern __shared__ __align__\(16\) unsigned char (\w+)\[\];",
                  r"unsigned char* \1 = ::emulated::dynamic_shared();", text)
    launch = re.compile(r"(?P<kernel>\w+(?:<[\w, ]+>)?)\s*<<<(?P<shape>.*?)>>>\s*\(", re.S)
    while True:
        found = launch.search(text)
        if not found:
            return text
        end = closing(text, found.end() - 1)
        arguments = text[found.end() - 1:end]
        call = (f"::emulated::launch({found['shape']}, [=] {{ {found['kernel']}{arguments}; }})")
        text = text[:found.start()] + call + text[end:]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = translate(file.read())
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(f'#include "emulator.hpp"\n#line 1 "{sys.argv[1]}"\n' + text)


main()
