#!/usr/bin/env bash
# What to learn from the first half hour of a GPU. Runs alone, needs no network, and writes one file:
#   docs/benchmarks/first_gpu.sh [FILE]                     (default: first_gpu.txt)
#   TINY=1 DEVICE=cpu docs/benchmarks/first_gpu.sh FILE     the same at toy sizes, to see that it works
# Each part has a time limit, and one that fails leaves the others to run: read the exit statuses in the file.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-first_gpu.txt}")
device=${DEVICE:-cuda} python=${PYTHON:-python}
store=$(mktemp -d)
trap 'rm -rf "$store"' EXIT
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD

part() { # title, seconds, command…
    local title=$1 limit=$2
    shift 2
    printf '\n== %s\n$ %s\n' "$title" "$*" >>"$out"
    local begun=$SECONDS
    timeout --kill-after=10 "$limit" "$@" >>"$out" 2>&1
    printf 'exit status %s after %s s\n' "$?" "$((SECONDS - begun))" >>"$out"
}

study() { # store, options…
    local where=$1
    shift
    "$python" -m ablate run studies/norm_placement.yaml --scale smoke --device "$device" --set evals=null --store "$where" "$@"
}

interrupted() { # killed in the middle, and run again: the second must reuse or resume what the first left
    timeout --signal=KILL 20 "$python" -m ablate run studies/norm_placement.yaml --scale smoke \
        --device "$device" --set evals=null --store "$store/killed" --checkpoint-seconds 1
    study "$store/killed"
}

at_once() { # one, two and four small runs on one device: seconds of the same work
    for workers in 1 2 4; do
        local begun=$SECONDS
        study "$store/at-once-$workers" --set measure=null --set "seeds=$([ -n "$TINY" ] && echo 1 || echo 4)" \
            $([ "$device" = cuda ] && echo --workers-per-gpu || echo --workers) "$workers" >/dev/null
        echo "$workers at once: $((SECONDS - begun)) s"
    done
}

export -f study interrupted at_once
export device python store TINY=${TINY:-}
: >"$out"
part versions 60 "$python" docs/benchmarks/first_gpu.py versions "$device"
[ "$device" = cuda ] && part "the driver" 30 nvidia-smi
[ "$device" = cuda ] && part "tests that need a GPU" 420 "$python" -m pytest -m gpu -q -p no:cacheprovider
part "a study, killed and resumed" 240 bash -c interrupted
part "every choice against the CPU: a training step and a cached decode" 300 "$python" docs/benchmarks/first_gpu.py choices "$device"
part "training steps, eager and compiled" 420 "$python" docs/benchmarks/first_gpu.py steps "$device"
part "attention, with and without flex" 300 "$python" docs/benchmarks/first_gpu.py attention "$device"
part "decoding, with and without graphs" 240 "$python" docs/benchmarks/first_gpu.py decoding "$device"
part "small runs at once" 240 bash -c at_once
echo "$out"
