#!/usr/bin/env bash
# What to learn from the first half hour of a GPU. Runs alone, needs no network, and appends to one file as it goes:
#   docs/benchmarks/first_gpu.sh [FILE [PART…]]             (default: first_gpu.txt, all parts)
#   TINY=1 DEVICE=cpu docs/benchmarks/first_gpu.sh FILE     the same at toy sizes, to see that it works
# What matters most comes first. Each part has a time limit, one that fails leaves the others to run, and no part begins
# that the whole has no time for (SECONDS_IN_ALL, default 1740): read the exit statuses in the file. PATIENCE=N multiplies
# the limits, for slow machines.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-first_gpu.txt}")
shift $(($# > 0))
device=${DEVICE:-cuda} python=${PYTHON:-python} in_all=${SECONDS_IN_ALL:-1740} patience=${PATIENCE:-1}
wanted=" $* "
store=$(mktemp -d)
trap 'rm -rf "$store"' EXIT
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD

part() { # name, title, seconds, command…
    local name=$1 title=$2 limit=$(($3 * patience)) left=$((in_all * patience - SECONDS - 10))
    shift 3
    [[ $wanted == "  " || $wanted == *" $name "* ]] || return 0
    printf '\n== %s: %s\n$ %s\n' "$name" "$title" "$*" >>"$out"
    ((left > 20)) || { echo "left out: no time" >>"$out"; return 0; }
    local begun=$SECONDS
    timeout --kill-after=10 $((limit < left ? limit : left)) "$@" >>"$out" 2>&1
    printf 'exit status %s after %s s\n' "$?" "$((SECONDS - begun))" >>"$out"
}

begin() { # scale, store, options…: takes the place of this shell
    local scale=$1 where=$2
    shift 2
    exec "$python" -m ablate run studies/norm_placement.yaml --scale "$scale" --device "$device" --store "$where" \
        --set evals=null --set measure=null "$@" </dev/null
}

study() { (begin "$@"); }

interrupted() { # killed once it has saved something, and run again: the second goes on where the first was
    local settings=(smoke "$store/killed" --set "budget.tokens=$steps_long" --set seeds=1 --checkpoint-seconds 0.1)
    begin "${settings[@]}" &
    for _ in $(seq $((900 * patience))); do
        [ -z "$(find "$store/killed" -name state.pt 2>/dev/null)" ] || break
        sleep 0.1
    done
    kill -KILL $!
    wait
    find "$store/killed" -name state.pt | grep -q . || echo "nothing was saved before it was killed"
    study "${settings[@]}" || return
    grep -rhoa "resumed after step [0-9]*" "$store/killed" | sort | uniq -c
}

at_once() { # one, two and four small runs on one device: seconds of the same work
    local workers begun
    for workers in 1 2 4; do
        begun=$SECONDS
        study smoke "$store/at-once-$workers" --set "seeds=$([ -n "$TINY" ] && echo 1 || echo 4)" \
            --set "budget.tokens=$steps_long" \
            $([ "$device" = cuda ] && echo --workers-per-gpu || echo --workers) "$workers" >/dev/null
        echo "$workers at once: exit status $?, $((SECONDS - begun)) s"
    done
}

quick() { # a study in earnest, on text that is there without a network
    study "$([ -n "$TINY" ] && echo smoke || echo gpu-quick)" "$store/quick" --set seeds=1 --set tune=off \
        --set "data={source: stdlib, tokenizer: {kind: bpe, vocab_size: 4096}}"
}

export -f begin study interrupted at_once quick
export device python store patience TINY=${TINY:-}
export steps_long=$([ -n "$TINY" ] && echo 1e5 || echo 1e6)
measure="$python docs/benchmarks/first_gpu.py"
touch "$out"
part versions "what there is" 60 $measure versions "$device"
part study "a study, killed and resumed" 180 bash -c interrupted
part steps "training steps as they are written" 150 $measure steps "$device"
part choices "every choice against the CPU: a training step and a cached decode" 240 $measure choices "$device"
part compiled "training steps, compiled" 420 $measure compiled "$device"
[ "$device" = cuda ] && part tests "tests that need a GPU" 240 "$python" -m pytest -m gpu -q -p no:cacheprovider \
    $(grep -rl --include='test_*.py' 'pytest.mark.gpu' tests)
part attention "attention, by all backends that can do it" 200 $measure attention "$device"
part decoding "decoding, with and without graphs" 240 $measure decoding "$device"
part at-once "small runs at once" 300 bash -c at_once
part quick "a study at gpu-quick" 600 bash -c quick
echo "$out"
