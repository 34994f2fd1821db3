#!/usr/bin/env bash
# Installs what is needed, builds Skein, trains a small GPT on the King James Bible in a pipeline of
# two worker processes, and prints text that it writes. Ten minutes on two cores, the build included.
#   examples/quickstart.sh [--no-install]
set -euo pipefail
cd "$(dirname "$0")/.."
[ "${1:-}" = "--no-install" ] || bash cmake/install-packages.sh build
echo "building build/release/skein"
cmake --preset release -DSKEIN_TESTS=OFF -DSKEIN_BENCH=OFF >/dev/null
cmake --build build/release --target skein | tail -n 1
build/release/skein train examples/quickstart.toml --workers 2
echo
echo "--- what the model writes:"
build/release/skein generate outputs/latest --tokens 400 --prompt "And the LORD said"
