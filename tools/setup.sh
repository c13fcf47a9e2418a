#!/usr/bin/env bash
# `make setup`: install the virtual environment from requirements-dev.lock (hash-checked), and as root the system packages
# that the drivers and the cluster need. It prints what it does and can be run again.
set -euo pipefail
PYTHON=${PYTHON:-python3}; VENV=${VENV:-.venv}
say() { printf '\033[1m[setup]\033[0m %s\n' "$*"; }

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Podium needs Python 3.11 or newer; $PYTHON is $("$PYTHON" --version 2>&1). Try: make PYTHON=python3.12 ..." >&2; exit 1; }

missing=()
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v git >/dev/null || missing+=(git)
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing ${missing[*]} (apt)"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
  else
    echo "missing: ${missing[*]}. Install them, or run as root on a Debian system, where this script does it." >&2; exit 1
  fi
fi

[ -x "$VENV/bin/python" ] || { say "creating $VENV"; "$PYTHON" -m venv "$VENV"; }
say "installing the pinned dependencies (requirements-dev.lock)"
"$VENV/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
say "installing Podium itself, editable"
"$VENV/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
