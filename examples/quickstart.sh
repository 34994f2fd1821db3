#!/usr/bin/env bash
# Installs what is needed, builds Skein, trains a small GPT on the King James Bible in a pipeline of
# two worker processes, and prints text that it writes. Ten minutes on two cores, the build included.
#   examples/quickstart.sh [--no-install]
set -euo pipefail
cd "$(dirname "$0")/.."

build() {
  NINJA_STATUS="[%f/%t, %e s] " cmake --build build/release --target skein
}

# For a file or a pipe: a line every ten seconds, and whatever the compiler says. A terminal sees how
# far the build is on one line that changes.
show_progress() {
  local line next=0
  while IFS= read -r line; do
    case "$line" in
      \[*) [ $SECONDS -lt $next ] || { echo "$line"; next=$((SECONDS + 10)); } ;;
      *) echo "$line" ;;
    esac
  done
}

[ "${1:-}" = "--no-install" ] || bash cmake/install-packages.sh build
echo "building build/release/skein"
cmake --preset release -DSKEIN_TESTS=OFF -DSKEIN_BENCH=OFF >/dev/null
if [ -t 1 ]; then build; else build | show_progress; fi
build/release/skein train examples/quickstart.toml --workers 2
echo
echo "--- what the model writes:"
build/release/skein generate outputs/latest --tokens 400 --prompt "And the LORD said"
