"""Packages that only PyPI has, and a test compares with."""
import glob
import importlib.util
import os
import sys

from running import PYTHON_PACKAGES

SKIPPED = 77  # As ctest knows it.


def need(*packages):
    """Goes on with a Python that has the packages: this one, or that of build/python. There is none: the test is
    skipped, and a line says what installs them."""
    if all(importlib.util.find_spec(package) for package in packages):
        return
    python = os.path.join(PYTHON_PACKAGES, "bin", "python")
    there = os.path.join(PYTHON_PACKAGES, "lib", "python3*", "site-packages")
    has_all = all(glob.glob(os.path.join(there, package)) for package in packages)
    if has_all and os.path.abspath(sys.executable) != python:
        os.execv(python, [python, *sys.argv])
    print(f"skipped: needs {', '.join(packages)} of PyPI; cmake/install-python-packages.sh transformers installs them")
    sys.exit(SKIPPED)
