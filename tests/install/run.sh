#!/usr/bin/env bash
# Builds the source distribution, and from that a wheel, with the settings of [tool.cibuildwheel]; tries each wheel in an
# environment of its own. `make wheel PYTHONS="python3.11 python3.13"` names the Pythons.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$root/build/wheel
rm -rf "$work" "$root/dist"
mkdir -p "$work"
for python in ${PYTHONS:-python3}; do
  name=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  "$python" -m venv "$work/build-$name"
  "$work/build-$name/bin/pip" --disable-pip-version-check -q install build
  [ -e "$root"/dist/*.tar.gz ] || "$work/build-$name/bin/python" -m build -s -o "$root/dist" "$root" > "$work/sdist.log"
  tree=$work/tree-$name # the profile knows objects by their paths
  mkdir "$tree" && tar -xzf "$root"/dist/*.tar.gz -C "$tree" --strip-components=1
  bash "$tree/tests/install/learn.sh" "$work/build-$name/bin/python" "$tree/build/fakecuda"
  (cd "$tree" && STF_COMPILE=always STF_PROFILE=use "$work/build-$name/bin/pip" --disable-pip-version-check -q wheel \
    --no-deps --no-build-isolation -w "$root/dist" .)
  "$python" -m venv "$work/clean-$name"
  "$work/clean-$name/bin/pip" --disable-pip-version-check -q install "$root"/dist/*-"$name"-*.whl
  (cd "$work" && "clean-$name/bin/python" "$root/tests/install/check.py" "$root/README.md")
done
# without a compiler
python=${PYTHONS:-python3}
python=${python%% *}
"$python" -m venv "$work/uncompiled"
STF_COMPILE=never "$work/uncompiled/bin/pip" --disable-pip-version-check -q install "$root"/dist/*.tar.gz
(cd "$work" && "uncompiled/bin/python" "$root/tests/install/check.py" "$root/README.md" --uncompiled > uncompiled.out 2> uncompiled.log) || { cat "$work/uncompiled.log"; exit 1; }
cat "$work/uncompiled.out"
grep -q "installed without a C compiler" "$work/uncompiled.log"
tar -tzf "$root"/dist/*.tar.gz > "$work/files"
grep -q /docs/tutorial.md "$work/files"
grep -q "all well" "$work/uncompiled.out"
