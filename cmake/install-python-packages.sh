#!/usr/bin/env bash
# Installs Hugging Face's tokenizers, which Debian does not have, into build/python of this tree.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/python
"$folder/bin/python" -c 'import tokenizers' 2>/dev/null && exit 0
echo "installing tokenizers into $folder"
/usr/bin/python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 'tokenizers>=0.20,<1' ||
  { rm -rf "$folder"; exit 1; }
