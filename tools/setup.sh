#!/usr/bin/env bash
# Makes .venv with everything that building and testing need.  What the system lacks is installed where that is
# possible (Debian as root), else named with the exact command.  Safe to run again: done work is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
need() { # need <description> <debian package...>
  local what=$1; shift
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing $what ($*)"
    apt-get install -y -qq "$@" >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq "$@" >/dev/null; }
  else
    echo "magneto needs $what. Install it with:  sudo apt-get install $*" >&2
    exit 1
  fi
}

PYTHON=${PYTHON:-}
if [ -z "$PYTHON" ]; then
  for candidate in python3.11 python3.12 python3.13 python3.14 python3; do
    if command -v $candidate >/dev/null && $candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'; then
      PYTHON=$candidate; break
    fi
  done
fi
[ -n "$PYTHON" ] || { need "Python 3.11 to 3.14" python3 python3-dev python3-venv; PYTHON=python3; }
command -v gcc >/dev/null || command -v cc >/dev/null || need "a C compiler" gcc libc6-dev
header=$($PYTHON -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
[ -f "$header" ] || need "the Python headers" "$($PYTHON -c 'import sys; print("python3.%d-dev" % sys.version_info[1])')"
if [ ! -x .venv/bin/python ]; then
  say "making .venv with $($PYTHON --version)"
  $PYTHON -m venv .venv 2>/dev/null || { need "venv" python3-venv; $PYTHON -m venv .venv; }
fi
stamp=.venv/.magneto-$(cat requirements/dev.txt requirements/models.txt | cksum | cut -d' ' -f1)
if [ ! -f "$stamp" ]; then
  say "installing the Python packages (a few minutes the first time)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/models.txt
  touch "$stamp"
fi
