#!/usr/bin/env bash
# Tables of bench/policies on the best data at hand: Fashion-MNIST if a folder is named, else the
# digits of python3-sklearn if that is installed, else synthetic ones.
#   bench/policies/run.sh BUILD_FOLDER [--fashion-mnist FOLDER] [OPTION...]
set -euo pipefail
build=$1
shift
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
data=()
if [[ " $* " != *" --fashion-mnist "* && ( " $* " != *" --gpt "* || " $* " == *" --worth "* ) ]]; then
  if "$(dirname "$0")/digits_to_idx.py" "$folder"; then data=(--digits "$folder"); fi
fi
"$build/bench/policies" "${data[@]}" "$@"
