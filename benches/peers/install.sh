#!/usr/bin/env bash
# Installs what the peer benchmarks need into a virtual environment.
#
#   benches/peers/install.sh FOLDER [MORE_REQUIREMENTS...]
#
# makes FOLDER/venv (about 4.5 GB) and prints the path of its python. Nothing is done where the
# same requirements are installed already. PYTHON chooses the interpreter, python3 by default.
set -euo pipefail

if [[ $# -lt 1 ]]; then
    echo "usage: $0 FOLDER [MORE_REQUIREMENTS...]" >&2
    exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1
shift
requirements=("$here/requirements.txt" "$@")
venv=$folder/venv
stamp=$folder/installed-requirements.txt

if [[ ! -f $stamp ]] || ! cat "${requirements[@]}" | cmp --silent - "$stamp"; then
    mkdir -p "$folder"
    rm -f "$stamp"
    "${PYTHON:-python3}" -m venv "$venv" >&2
    arguments=()
    for file in "${requirements[@]}"; do
        arguments+=(--requirement "$file")
    done
    "$venv/bin/python" -m pip install --quiet --no-cache-dir --no-deps "${arguments[@]}" >&2
    "$venv/bin/python" -c 'import torch; torch.ones(2, 2) @ torch.ones(2, 2)' >&2
    cat "${requirements[@]}" >"$stamp"
fi
echo "$venv/bin/python"
