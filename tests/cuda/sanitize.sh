#!/usr/bin/env bash
# Random programs, recorded ones, and some tests under compute-sanitizer: memcheck, initcheck, racecheck. A table comes
# last; exits with 1 if a tool found something, or lost track (TOOL), or a program failed.
#
#   PROGRAMS=1000 PROCESSES=4 SECONDS_EACH=150 bash tests/cuda/sanitize.sh [tool ...]
cd "$(dirname "$0")/../.." || exit 1
OUT="${OUT:-build/logs}"
mkdir -p "$OUT"
OUT="$(cd "$OUT" && pwd)"
PYTHON="${GPU_PYTHON:-python3}"
PROGRAMS="${PROGRAMS:-1000}"
PROCESSES="${PROCESSES:-4}"
SECONDS_EACH="${SECONDS_EACH:-150}"
SANITIZER="${SANITIZER:-$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)}"
if [ -z "$SANITIZER" ]; then
    echo "compute-sanitizer is not there: set SANITIZER to it"
    exit 1
fi
export PYTHONPATH="src:$PYTHONPATH" STF_TEST_DEVICES=cuda:0 STF_CPU_WORKERS=2
export STF_CONDITIONAL_NODES=0 STF_HOST_POOL=0 # which the tools do not know: see docs/design/recordings.md
export CUPY_CACHE_DIR="${CUPY_CACHE_DIR:-$OUT/cupy}"
TESTS="tests/cuda/test_libraries.py tests/conformance/test_reductions.py tests/conformance/test_data.py"
STRESS="$PYTHON tests/stress/run.py --devices cuda:0 --processes $PROCESSES --seconds $SECONDS_EACH"

# Leaks are not looked for: CuPy keeps its pool, and CUDA its modules, to the end. Errors that calls return on purpose
# (registering memory twice, asking about host addresses) are no errors of ours. For backtraces of the host the tool
# keeps the Python frames that launch kernels, and what is in their variables (held_frames.py), and a thread that waits
# for Python's lock stops the driver. initcheck takes for unwritten what docs/design/recordings.md tells ("What
# tools make of it"), so there is none of that here: pools of host memory, copies of slices, graphs, several threads.
flags() {
    echo "--tool $1 --show-backtrace device $([ "$1" = memcheck ] && echo --report-api-errors no)"
}

status=0
table=""
check() { # tool, what it is called in the table, command
    tool="$1" name="$2"
    shift 2
    log="$OUT/sanitize-$tool-$name.log"
    start=$SECONDS
    # shellcheck disable=SC2046
    timeout $((SECONDS_EACH + 60)) "$SANITIZER" $(flags "$tool") --target-processes all --error-exitcode 86 \
        --require-cuda-init no "$@" >"$log" 2>&1
    code=$?
    found=$(grep -Eo "ERROR SUMMARY: [1-9][0-9]* error|RACECHECK SUMMARY: [1-9][0-9]* hazard" "$log" | awk "{ for (i = 1; i <= NF; i++) if (\$i ~ /^[0-9]+$/) n += \$i } END { print n + 0 }")
    last=$(grep -E "programs on|passed|failed" "$log" | tail -n 1)
    ran=$(echo "$last" | grep -Eo '^[0-9,]+ of [0-9,]+ ' | tr -d ',')
    if [ $code -eq 0 ] && [ -n "$ran" ] && [ "${ran%% of*}" != "$(echo "${ran##*of }" | tr -d ' ')" ]; then
        code=FEWER # than were asked for: SECONDS_EACH is too short
    fi
    internal=$(grep -c "Internal Sanitizer Error" "$log")
    if [ "$code" = 86 ] && [ "$internal" -ge "${found:-0}" ]; then
        code=TOOL # which counts its own failures, and saw nothing else
    fi
    [ "$code" = 0 ] || status=1
    table="$table$(printf '%-10s %-9s %-7s %5s errors  %4ds  %s' "$tool" "$name" "$([ "$code" = 0 ] && echo ok || echo "FAILED($code)")" "${found:-0}" $((SECONDS - start)) "$last")"$'\n'
}

for tool in ${*:-memcheck initcheck racecheck}; do
    count=$PROGRAMS
    unset STF_TEST_FORMS STF_TEST_THREADS
    [ "$tool" = racecheck ] && count=$((PROGRAMS / 4)) # races in shared memory: only those of the kernels themselves
    [ "$tool" = initcheck ] && export STF_TEST_FORMS=C STF_TEST_THREADS=0
    # shellcheck disable=SC2086
    check "$tool" programs $STRESS --count "$count"
    # shellcheck disable=SC2086
    [ "$tool" = memcheck ] && check "$tool" recorded $STRESS --recorded --first 500000 --count $((PROGRAMS / 2))
    # shellcheck disable=SC2086
    [ "$tool" = racecheck ] || check "$tool" tests "$PYTHON" -m pytest -q -p no:cacheprovider --timeout 0 $TESTS \
        -k "$([ "$tool" = initcheck ] && echo 'not graph and not strides and not record and not replay')"
done
printf '%s' "$table"
exit $status
