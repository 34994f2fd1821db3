#!/usr/bin/env bash
# Installs Python packages that Debian does not have into build/python of this tree:
#   install-python-packages.sh tokenizers       Hugging Face's, for tools/skein-prepare
#   install-python-packages.sh transformers     Hugging Face's, with torch: 3 GB, for ctest -L pypi
#   install-python-packages.sh cudnn-frontend   headers with which the CUDA plugin asks cuDNN for attention
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/python
case "${1:-}" in
  tokenizers) package='tokenizers>=0.20,<1' there=tokenizers ;;
  transformers) package='torch>=2.4 transformers>=4.46,<6 tokenizers>=0.20,<1 numpy' there=transformers ;;
  cudnn-frontend) package='nvidia-cudnn-frontend>=1.32,<2' there=include/cudnn_frontend.h ;;
  *) sed -n '2,5 s/^# \?//p' "$0" >&2; exit 2 ;;
esac
! ls "$folder"/lib/python3*/site-packages/"$there" >/dev/null 2>&1 || exit 0
echo "installing $1 into $folder"
[ -x "$folder/bin/pip" ] || /usr/bin/python3 -m venv "$folder" || { rm -rf "$folder"; exit 1; }
no_deps=()
read -ra packages <<< "$package"
[ "$1" != cudnn-frontend ] || no_deps=(--no-deps)  # Only its headers are wanted.
"$folder/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 "${no_deps[@]}" "${packages[@]}"
