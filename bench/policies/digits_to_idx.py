#!/usr/bin/env python3
"""Exports the 8x8 handwritten digits that come with scikit-learn (Debian: python3-sklearn) to IDX
files as MNIST's, for bench/policies. Every fifth digit is held out.
    digits_to_idx.py FOLDER [digits.csv.gz]
"""
import gzip
import importlib.util
import os
import struct
import sys


def find_digits():
    spec = importlib.util.find_spec("sklearn")  # Found, not imported: that would need NumPy.
    if spec is None:
        sys.exit("no scikit-learn: install python3-sklearn, or name its digits.csv.gz")
    return os.path.join(os.path.dirname(spec.origin), "datasets", "data", "digits.csv.gz")


def write_idx(path, sizes, values):
    with open(path, "wb") as file:
        file.write(struct.pack(f">BBBB{len(sizes)}I", 0, 0, 8, len(sizes), *sizes))
        file.write(bytes(values))


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    with gzip.open(sys.argv[2] if len(sys.argv) > 2 else find_digits(), "rt") as file:
        rows = [[int(float(value)) for value in line.split(",")] for line in file]
    parts = {"train": [row for i, row in enumerate(rows) if i % 5 != 0], "t10k": rows[::5]}
    for name, part in parts.items():
        pixels = [value * 15 for row in part for value in row[:64]]  # 0..16, to bytes.
        write_idx(f"{folder}/{name}-images-idx3-ubyte", [len(part), 8, 8], pixels)
        write_idx(f"{folder}/{name}-labels-idx1-ubyte", [len(part)], [row[64] for row in part])


if __name__ == "__main__":
    main()
