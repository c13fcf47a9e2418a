#!/usr/bin/env bash
# `make lock`: pin the dependencies of the wheels (requirements.lock) and of development (requirements-dev.lock), of the
# examples, of the benchmarks and of fuzzing, and of an image that they use. uv resolves once for all supported versions
# of Python; no index address is written.
set -euo pipefail
VENV=${VENV:-.venv}
pin() { "$VENV/bin/uv" pip compile -q "$1" ${3:+--extra "$3"} --universal --generate-hashes --no-emit-index-url --python-version 3.11 --no-header -o "$2"; }
"$VENV/bin/python" -m pip install -q uv
pin pyproject.toml requirements.lock all
pin pyproject.toml requirements-dev.lock dev
[ ! -f examples/digits/requirements.in ] || pin examples/digits/requirements.in examples/digits/requirements.lock
pin examples/pytorch/requirements.in examples/pytorch/requirements.lock
pin examples/recipes/requirements.in examples/recipes/requirements.lock
pin benchmarks/rivals/requirements.in benchmarks/rivals/requirements.lock
pin devcluster/katib/requirements.in devcluster/katib/requirements.lock
pin tests/unit/fuzz/requirements.in tests/unit/fuzz/requirements.lock
