#!/usr/bin/env bash
# What to do with a rented quarter of an hour of a GPU. At most 12 minutes, without a network; what is missed most comes first:
#   docs/benchmarks/quarter_hour.sh prepare FOLDER          beforehand, on any machine: tokenise the text into FOLDER/text.tgz
#   docs/benchmarks/quarter_hour.sh FOLDER/report.txt       on the GPU
#   TINY=1 DEVICE=cpu docs/benchmarks/quarter_hour.sh …     the same at toy sizes, to see that it works
# Appends to the report as it goes, and packs runs as they end into the archive FOLDER/report.zip, without weights: whenever
# the card is taken away, both are whole. The next call, with another report in the same folder, merges the archives there
# and trains what is missing, if the card is of the same kind. `ablate merge FOLDER/report.zip` takes the runs home.
#
# The text is the books below $ABLATE_TEST_DATA, else Python's library. SECONDS_IN_ALL (default 700) limits the whole,
# PATIENCE=N multiplies all limits, and STORE=FOLDER, a new one, keeps the runs with their weights.
set -uo pipefail
here=$PWD
cd "$(dirname "$0")/../.." || exit 2
device=${DEVICE:-cuda} python=${PYTHON:-python} in_all=${SECONDS_IN_ALL:-700} patience=${PATIENCE:-1} wanted="  "
scale=$([ -n "${TINY:-}" ] && echo smoke || echo gpu-minutes)
queue="norm_placement swa_nope ffn_activation rope_base gqa_groups"
asked=$(cd "$here" && realpath -m "${*: -1}")
store=$(realpath -m "${STORE:-$(mktemp -d)}")
watcher= # process that packs runs as they end
trap '[ -z "$watcher" ] || kill "$watcher"; [ -n "${STORE:-}" ] || rm -rf "$store"' EXIT
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
. docs/benchmarks/parts.sh

settings=(--scale "$scale" --store "$store")
if [ -n "${TINY:-}" ]; then
    queue="norm_placement swa_nope"
    said="the studies' own text"
    settings+=(--set seeds=1 --set evals=null)
elif [ -n "${ABLATE_TEST_DATA:-}" ]; then
    # 24 MB are 6 M tokens, in which a run reads 25 M: four epochs, after which repeated text begins to be worth less.
    said="24 MB of books, read four times"
    books="{source: files, paths: ['\$ABLATE_TEST_DATA/books/train-*.parquet'], limit: 24000000"
    settings+=(--set "data=$books, tokenizer: {kind: bpe, vocab_size: 8192}}" --set "budget={tokens: 2.5e7}")
else
    said="Python's library, read several times"
    settings+=(--set "data={source: stdlib, tokenizer: {kind: bpe, vocab_size: 8192}}" --set "budget={tokens: 2.5e7}")
fi

if [ "${1:-}" = prepare ] && [ $# = 2 ]; then
    for study in $queue; do
        "$python" -m ablate data "studies/$study.yaml" "${settings[@]}" || exit
    done
    mkdir -p "$asked" && tar -czf "$asked/text.tgz" -C "$store" data && du -h "$asked/text.tgz"
    exit
elif [ $# != 1 ]; then
    sed -n '2,5p' "$0" >&2
    exit 2
fi
out=$asked archive=${asked%.txt}.zip folder=$(dirname "$asked")
mkdir -p "$folder" "$store" && touch "$out" || exit

brought() { # what was prepared, and what earlier calls trained
    [ ! -e "$folder/text.tgz" ] || tar -xzf "$folder/text.tgz" -C "$store"
    local found
    for found in "$folder"/*.zip; do
        [ ! -e "$found" ] || "$python" -m ablate merge "$found" --store "$store"
    done
}

tests() { # by file, four at once, each until its first failure
    set -o pipefail
    local files
    mapfile -t files < <(grep -rl --include='test_*.py' 'pytest.mark.gpu' tests | sort)
    printf '%s\n' "${files[@]}" |
        xargs -P 4 -I FILE "$python" -m pytest -m gpu -x -vv -rfE --tb=line -p no:cacheprovider FILE | grep --line-buffered '::'
}

ended() { find "$store" -maxdepth 2 -name result.json | sort; }

packed() { # all runs that have ended; replaced in one step, so that the archive is whole at any moment
    local names=() study
    for study in $queue; do
        [ ! -e "$store/studies/$study-$scale/study.json" ] || names+=("$study")
    done
    "$python" -m ablate pack "${names[@]}" --scale "$scale" --store "$store" --out "$archive.new" && mv "$archive.new" "$archive"
}

watch() { # packs whenever a run has ended
    local known= found
    while [ ! -e "$store/packing.ends" ] && sleep 3; do
        found=$(ended)
        [ "$found" = "$known" ] || { packed && known=$found; } # a failure is of a study half written: try again
    done >"$store/packing.log" 2>&1
}

study() { # arrays are not exported
    local own
    mapfile -t own <<<"$given"
    "$python" -m ablate run "studies/$1.yaml" "${own[@]}" --device "$device" --checkpoint-seconds 20 \
        $([ "$device" = cuda ] && echo --workers-per-gpu || echo --workers) 2 </dev/null
}

export -f brought tests ended packed study
given=$(printf '%s\n' "${settings[@]}")
export store folder python device scale queue archive given TINY=${TINY:-}

part versions "versions, a product and a copy" 30 "$python" docs/benchmarks/first_gpu.py versions "$device"
part profile "what a compiled step of gpu-hour spends its time on" 60 "$python" docs/benchmarks/first_gpu.py kernels "$device" compiled
[ "$device" != cuda ] || part tests "tests that need a GPU" 120 bash -c tests
part brought "what was prepared, and earlier runs" 60 bash -c brought
watch & watcher=$!
for name in $queue; do
    part "$name" "the study at $scale, on $said" "$in_all" bash -c "study $name"
done
touch "$store/packing.ends"; wait "$watcher"; watcher=; rm "$store/packing.ends" # two that pack at once would write one file
part packed "runs that have ended" 60 bash -c packed
part speeds "speed and memory of each run" 30 "$python" docs/benchmarks/stored_speeds.py "$store"
echo "$out"
