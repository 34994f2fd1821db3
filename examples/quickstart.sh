#!/usr/bin/env bash
# Installs what is needed, builds Skein, trains a small GPT on the King James Bible in a pipeline of
# two worker processes, and prints text that it writes. Ten minutes on two cores, the build included.
#   examples/quickstart.sh [--no-install]
set -euo pipefail
cd "$(dirname "$0")/.."

source cmake/show-progress.sh
install=1
case "${1:-}" in
  "") ;;
  --no-install) install=0 ;;
  --help) sed -n '2,4 s/^# \?//p' "$0"; exit 0 ;;
  *) sed -n '2,4 s/^# \?//p' "$0" >&2; exit 2 ;;
esac

build() { cmake --build build/release --target skein; }

[ $install -eq 0 ] || bash cmake/install-packages.sh build
echo "building build/release/skein"
# In a new folder fewer, larger compilations, as in tests/run.sh, which goes on in the same folder.
unity=()
[ -e build/release/CMakeCache.txt ] || unity=(-DSKEIN_UNITY=ON)
cmake --preset release -DSKEIN_TESTS=OFF -DSKEIN_BENCH=OFF "${unity[@]}" >/dev/null
if [ -t 1 ]; then build; else build | show_progress; fi
build/release/skein train examples/quickstart.toml --workers 2
echo
echo "--- what the model writes:"
build/release/skein generate outputs/latest --tokens 400 --prompt "And the LORD said"
