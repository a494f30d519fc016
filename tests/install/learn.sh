#!/usr/bin/env bash
# Lets the compiled form of this tree learn what runs: builds it so that it counts, and runs benchmarks/cuda/train.py.
# A build with STF_PROFILE=use in the same tree then goes by the counts. Needs GCC.
#
#   learn.sh PYTHON              # which has what a build and stf need; on a machine with GPUs from these, too
#   learn.sh PYTHON FOLDER       # installs that, and learns from the stand-in for CUDA, which is built in FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1
if [ $# -gt 1 ]; then
  mkdir -p build
  "$python" - > build/requirements.txt << 'END'
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))
own = project["project"]
print(*project["build-system"]["requires"], *own["dependencies"], *own["optional-dependencies"]["test"], sep="\n")
END
  "$python" -m pip --disable-pip-version-check -q install -r build/requirements.txt
fi
rm -rf build/profile
STF_COMPILE=always STF_PROFILE=record "$python" setup.py -q build_ext --inplace --force
export PYTHONPATH=$PWD/src:${PYTHONPATH:-}
if [ $# -gt 1 ]; then
  "$python" tests/fakecuda/build.py "$2" > /dev/null
  export LD_LIBRARY_PATH=$2 PYTHONPATH=$PYTHONPATH:$PWD/tests/fakecuda
fi
"$python" benchmarks/cuda/train.py
# What was built counts still: neither modules nor objects may be taken for up to date.
find src \( -name '*.so' -o -name '*.pyd' \) -delete
rm -rf build/temp.*
