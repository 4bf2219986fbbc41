#!/usr/bin/env bash
# Runs tests of frameworks and libraries, in a virtual environment of its own: .venv-integrations.
#   tools/integrations.sh <tests...>                       all packages of requirements/integrations.txt
#   PACKAGES="timm kornia" tools/integrations.sh <tests...>  installs these, and runs the tests with their names
# That environment sees the packages of .venv, so torch is not installed again.  Tests whose package is missing
# are skipped, and named.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-integrations
[ -x $venv/bin/python ] || .venv/bin/python -m venv $venv
.venv/bin/python -c 'import site; print(*site.getsitepackages())' > "$(echo $venv/lib/python3*/site-packages)"/venv.pth
wanted=$(grep -v '^#' requirements/integrations.txt)
names=""
if [ -n "${PACKAGES:-}" ]; then
  some=""
  for package in $PACKAGES; do
    # pytorch-ignite is imported as ignite, torch-geometric as torch_geometric; tests have these names.
    name=${package#pytorch-}; name=${name//-/_}
    names+="${names:+ or }$name"
    some+=$(grep -xiE "(pytorch-)?${name//_/[-_]}" <<<"$wanted" || true)$'\n' # the others are in .venv
  done
  wanted=$some
fi
missing=$(comm -23 <(sort -u <<<"$wanted" | sed '/^$/d') <(sort -u $venv/installed 2>/dev/null))
if [ -n "$missing" ]; then
  $venv/bin/python -m pip install --quiet --disable-pip-version-check $missing
  echo "$missing" >> $venv/installed
fi
MAGNETO_STRICT=1 exec $venv/bin/python -m pytest -q -rs -n "${WORKERS:-2}" --timeout=600 ${names:+-k "$names"} "$@"
