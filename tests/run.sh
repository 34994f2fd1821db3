#!/usr/bin/env bash
# Installs what is needed, builds, runs the tests, and prints where the time went.
#   tests/run.sh [--no-install] [--preset release|debug|asan|tsan] [--label REGEX] [--long] [--gate]
# --label REGEX  builds and runs only the tests that have such a label
# --long         runs the long form of the tests that have one: hours
# --gate         what .ci/run does: all but unit tests of effects, then these and fuzzing under the
#                sanitizers; clang-tidy and the headers for what a change touches; a test that is
#                skipped without a known reason is a failure
set -euo pipefail
cd "$(dirname "$0")/.."
source cmake/show-progress.sh
install=1 preset=release label='.' long=OFF gate=0 sanitized_builds=
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) install=0 ;;
    --preset) preset="${2:?--preset: which one?}"; shift ;;
    --label) label="${2:?--label: which one?}"; shift ;;
    --long) long=ON ;;
    --gate) gate=1 ;;
    --help) sed -n '2,8 s/^# \?//p' "$0"; exit 0 ;;
    *) sed -n '2,8 s/^# \?//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

times=()  # Lines of "seconds what".
timed() {  # what, command...
  local what="$1" start=$SECONDS
  shift
  echo "== $what"
  "$@"
  times+=("$((SECONDS - start)) $what")
}
print_times() {
  echo "== where the time went, in seconds"
  printf '%s\n' "${times[@]}" "$SECONDS all" | awk '{n = $1; $1 = ""; printf "%6d %s\n", n, $0}'
}

# What tests/e2e/compose.py needs: an engine that runs or can be started, Compose, and an image or
# what makes one. A client alone is of no use.
can_compose() {
  { docker compose version || command -v docker-compose; } >/dev/null 2>&1 &&
    { docker info || { command -v dockerd && command -v iptables; }; } >/dev/null 2>&1 &&
    { docker image inspect debian:bookworm-slim || command -v debootstrap; } >/dev/null 2>&1
}

install_packages() {
  bash cmake/install-packages.sh build test
  [[ ! e2e =~ $label ]] || bash cmake/install-python-packages.sh tokenizers ||
    echo "no tokenizers: most of e2e_prepare will be skipped"
  # So that what asks cuDNN for attention is compiled where CUDA is.
  [[ ! gpu =~ $label ]] || [ ! -x /usr/local/cuda/bin/nvcc ] || bash cmake/install-python-packages.sh cudnn-frontend ||
    echo "no front end of cuDNN: what uses it is not compiled"
  # Only root can use an engine. Where Debian's would replace another one, apt refuses.
  if [ "$(id -u)" -eq 0 ] && [[ compose =~ $label ]] && ! can_compose; then
    bash cmake/install-packages.sh docker || echo "no container engine: its test will be skipped"
  fi
}

build() {  # preset, label
  local folder="build/$1" targets=() unity=()
  [ "$1" != tsan ] || bash cmake/instrument-caf.sh
  # In a new folder, as in examples/quickstart.sh: fewer, larger compilations.
  [ -e "$folder/CMakeCache.txt" ] || unity=(-DSKEIN_UNITY=ON)
  cmake --preset "$1" -DSKEIN_LONG_TESTS=$long "${unity[@]}" >/dev/null
  if [ "$2" != '.' ]; then
    mapfile -t targets < <(ctest --test-dir "$folder" --print-labels |
                           sed -n 's/^  //p' | grep -E -- "$2" | sed 's/^/skein_tests_/')
    [ ${#targets[@]} -gt 0 ] || { echo "no test has a label like '$2'" >&2; return 1; }
    # Programs that no test runs must compile, too.
    [ "$1$gate" != release1 ] || targets+=(gpu/all bench/all)
  fi
  cmake --build "$folder" --target "${targets[@]:-all}" 2>&1 | show_progress
}

run_tests() {  # preset, label
  local folder="build/$1" report=() failed=0 places
  places=$(nproc)
  # Half of their time tests of real processes wait; those under a sanitizer compute.
  [ "$1" != release ] || places=$((2 * places))
  [ $gate -eq 0 ] || report=(--skipped-is-failure)
  ctest --test-dir "$folder" --output-on-failure --no-tests=error --parallel $places \
    --output-junit tests.xml -L "$2" || failed=1
  python3 tests/support/report_suites.py "${report[@]}" "$folder/tests.xml" || failed=1
  return $failed
}

sanitized='effects|fuzz'
# Takes what the release's tests leave, which wait for much of their time.
start_sanitized_builds() {
  mkdir -p build
  set -m  # A process group of its own, to be ended as one.
  (
    chrt --idle --pid 0 $BASHPID || echo "no chrt: this is built at the usual priority"
    build asan "$sanitized"
    build tsan threads
  ) </dev/null >build/sanitized.log 2>&1 &
  sanitized_builds=$!
  set +m
}
await_sanitized_builds() {
  local group=$sanitized_builds failed=0
  wait "$group" || failed=1
  sanitized_builds=
  [ $failed -eq 0 ] || cat build/sanitized.log
  return $failed
}
leave() {
  if [ -n "$sanitized_builds" ]; then
    kill -- "-$sanitized_builds" 2>/dev/null || true
    wait "$sanitized_builds" 2>/dev/null || true
  fi
  print_times
}

if [ $gate -eq 1 ] && [ "$label$preset" != '.release' ]; then
  echo "--gate has labels and presets of its own; leave --label and --preset out" >&2
  exit 2
fi
[ $gate -eq 0 ] || label='compose|cuda|decisions|e2e|example|fuzz|gpu|oracle|sim|tidy'
trap leave EXIT
[ $install -eq 0 ] || timed "install" install_packages
timed "$preset: build" build "$preset" "$label"
if [ $gate -eq 1 ]; then
  start_sanitized_builds
  timed "headers and clang-tidy of what the change touches" \
    python3 tests/tidy/changed.py --build "build/$preset"
fi
timed "$preset: tests" run_tests "$preset" "$label"
if [ $gate -eq 1 ]; then
  timed "what is left of the sanitizers' builds" await_sanitized_builds
  timed "asan: tests" run_tests asan "$sanitized"
  timed "tsan: tests" run_tests tsan threads
fi
