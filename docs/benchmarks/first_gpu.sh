#!/usr/bin/env bash
# What to learn from the first half hour of a GPU. Runs alone, needs no network, and appends to one file as it goes:
#   docs/benchmarks/first_gpu.sh [FILE [PART…]]             (default: first_gpu.txt, all parts)
#   TINY=1 DEVICE=cpu docs/benchmarks/first_gpu.sh FILE     the same at toy sizes, to see that it works
# What matters most comes first. Each part has a time limit, one that fails leaves the others to run, and no part begins
# that the whole has no time for (SECONDS_IN_ALL, default 1740): read the exit statuses in the file. PATIENCE=N multiplies
# the limits, for slow machines. STORE=FOLDER, a new one, keeps the runs with their reports.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-first_gpu.txt}")
shift $(($# > 0))
device=${DEVICE:-cuda} python=${PYTHON:-python} in_all=${SECONDS_IN_ALL:-1740} patience=${PATIENCE:-1}
wanted=" $* "
store=$(realpath -m "${STORE:-$(mktemp -d)}")
[ -n "${STORE:-}" ] || trap 'rm -rf "$store"' EXIT
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

. docs/benchmarks/parts.sh

begin() { # scale, store, options…: takes the place of this shell
    local scale=$1 where=$2
    shift 2
    exec "$python" -m ablate run studies/norm_placement.yaml --scale "$scale" --device "$device" --store "$where" \
        "$@" </dev/null
}

study() { (begin "$@"); }

bare() { # a study of training alone
    study "$@" --set evals=null --set measure=null
}

whole() { # one run of each arm with all that a study does: measuring, arms against each other, lm-eval
    study "$small" "$store/whole" --set seeds=1 "${text[@]}"
    local status=$?
    "$python" docs/benchmarks/stored_speeds.py "$store/whole"
    return $status
}

at_once() { # one, two and four runs on one device, at the shape of the default scale: seconds of the same work
    local workers begun
    for workers in 1 2 4; do
        begun=$SECONDS
        bare "$default" "$store/at-once-$workers" "${text[@]}" --set tune=off --set "budget.tokens=$a_while" \
            --set "seeds=$([ -n "$TINY" ] && echo 1 || echo 2)" \
            $([ "$device" = cuda ] && echo --workers-per-gpu || echo --workers) "$workers" >/dev/null
        echo "$workers at once: exit status $?, $((SECONDS - begun)) s"
    done
}

interrupted() { # killed once it has saved something, and run again: the second goes on where the first was
    local settings=(smoke "$store/killed" --set "budget.tokens=$steps_long" --set seeds=1 --checkpoint-seconds 0.1)
    settings+=(--set evals=null --set measure=null)
    begin "${settings[@]}" &
    for _ in $(seq $((900 * patience))); do
        [ -z "$(find "$store/killed" -name state.pt 2>/dev/null)" ] || break
        kill -0 $! 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL $! 2>/dev/null
    wait
    find "$store/killed" -name state.pt | grep -q . || echo "nothing was saved before it was killed"
    study "${settings[@]}" || return
    grep -rhoa "resumed after step [0-9]*" "$store/killed" | sort | uniq -c
}

quick() { # the study itself, on text that is there without a network
    study "$small" "$store/quick" "${text[@]}"
    local status=$?
    "$python" docs/benchmarks/stored_speeds.py "$store/quick"
    return $status
}

parts_with_text() { # arrays are not exported
    text=()
    [ -n "$TINY" ] || text=(--set "data={source: stdlib, tokenizer: {kind: bpe, vocab_size: 8192}}")
    "$@"
}

export -f begin study bare whole at_once interrupted quick parts_with_text
export device python store patience TINY=${TINY:-}
export small=$([ -n "$TINY" ] && echo smoke || echo gpu-minutes) default=$([ -n "$TINY" ] && echo smoke || echo gpu-hour)
export steps_long=$([ -n "$TINY" ] && echo 1e5 || echo 1e6) a_while=$([ -n "$TINY" ] && echo 2e4 || echo 1.3e7)
measure="$python docs/benchmarks/first_gpu.py"
touch "$out"
part versions "what there is, and the kernels that torch chooses" 60 $measure versions "$device"
part whole "one run of each arm, measured and evaluated" 300 bash -c "parts_with_text whole"
[ "$device" = cuda ] && part tests "tests that need a GPU" 420 "$python" -m pytest -m gpu -v -n 4 -p no:cacheprovider \
    $(grep -rl --include='test_*.py' 'pytest.mark.gpu' tests)
part default "the default scale's step, eager and compiled" 240 $measure default "$device"
part kernels "what the default scale's step spends its time on" 120 $measure kernels "$device"
part at-once "runs at once, at the default scale's shape" 300 bash -c "parts_with_text at_once"
part study "a study, killed and resumed" 120 bash -c interrupted
part decoding "decoding, with and without graphs" 200 $measure decoding "$device"
part quick "the study" 700 bash -c "parts_with_text quick"
part choices "every choice against the CPU: a training step and a cached decode" 240 $measure choices "$device"
part steps "training steps as they are written" 150 $measure steps "$device"
part compiled "training steps, compiled" 420 $measure compiled "$device"
part attention "attention, by all backends that can do it" 200 $measure attention "$device"
echo "$out"
