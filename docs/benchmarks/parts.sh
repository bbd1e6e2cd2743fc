# Parts of a script that measures on a GPU, for `source`. Needs out, python, in_all, patience and wanted: the file to append to,
# the interpreter, seconds for the whole script, what limits are multiplied by, and names of parts (" " for all).

part() { # name, title, seconds, command…: no part begins that there is no time for, and one that fails leaves the others to run
    local name=$1 title=$2 limit=$(($3 * patience)) left=$((in_all * patience - SECONDS - 10))
    shift 3
    [[ $wanted == "  " || $wanted == *" $name "* ]] || return 0
    printf '\n== %s: %s\n$ %s\n' "$name" "$title" "$*" >>"$out"
    ((left > 20)) || { echo "left out: no time" >>"$out"; return 0; }
    local begun=$SECONDS
    timeout --kill-after=10 $((limit < left ? limit : left)) "$@" >>"$out" 2>&1
    printf 'exit status %s after %s s\n' "$?" "$((SECONDS - begun))" >>"$out"
}
