#!/usr/bin/env bash
# Installs the Debian packages of the given kinds: install-packages.sh build [test] [docker]
set -euo pipefail
list="$(dirname "$0")/debian-packages.txt"
packages=()
for kind in "$@"; do
  while read -r of name; do
    [ "$of" = "$kind" ] && packages+=("$name")
  done < <(grep -v '^#' "$list")
done
missing=()
for name in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
done
[ ${#missing[@]} -eq 0 ] && exit 0
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "not root and no sudo: install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing ${#missing[@]} Debian packages"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends --no-remove "${missing[@]}" >/dev/null
