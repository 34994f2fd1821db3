#!/usr/bin/env bash
# Installs what is needed, builds everything and runs the tests.
#   tests/run.sh [--no-install] [--preset release|debug|asan|tsan] [--label REGEX] [--sanitizers]
# --sanitizers also builds and runs the unit tests under asan and tsan.
set -euo pipefail
cd "$(dirname "$0")/.."
install=1 preset=release label='.' sanitizers=0
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) install=0 ;;
    --preset) preset="$2"; shift ;;
    --label) label="$2"; shift ;;
    --sanitizers) sanitizers=1 ;;
    *) sed -n '2,4p' "$0" >&2; exit 2 ;;
  esac
  shift
done
[ $install -eq 0 ] || bash cmake/install-packages.sh build test
# An engine of containers is only of use to root, and another one may be here that excludes Debian's;
# without any, the test that needs it says that it is skipped.
if [ $install -eq 1 ] && [ "$(id -u)" -eq 0 ] && [[ compose =~ $label ]] \
    && ! command -v docker >/dev/null; then
  bash cmake/install-packages.sh docker || echo "no engine of containers: its test will be skipped"
fi

run_preset() {  # preset, label
  [ "$1" != tsan ] || bash cmake/instrument-caf.sh
  echo "== $1: build"
  cmake --preset "$1" >/dev/null
  # The log matters only when the build fails.
  cmake --build "build/$1" >"build/$1/build.log" 2>&1 || { tail -n 60 "build/$1/build.log"; exit 1; }
  echo "== $1: test"
  ctest --test-dir "build/$1" --output-on-failure -L "$2"
}

run_preset "$preset" "$label"
if [ $sanitizers -eq 1 ]; then
  run_preset asan 'unit|fuzz'
  run_preset tsan 'unit'
fi
