#!/usr/bin/env bash
# Makes the PTX of the CUDA C++ cases again:
#
#     cases/make.sh CUDA [FOLDER...]      CUDA is a toolkit's root, the folder with bin/nvcc
#
# Each `// build: FILE.ptx FLAGS` line of a FOLDER/kernel.cu makes FOLDER/FILE.ptx. The `// heist:` lines that
# follow it go into the file's header; `// mark: CODE TEXT` puts `//~ CODE` behind the first line that contains
# TEXT, and fails if there is none: then the compiler made something else of the kernel, and the case needs a
# look. nvcc runs beside the source with relative names, so that no path of the machine gets into a file.
# PTX without a `// build:` line is written by hand.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
nvcc=$(realpath "$1")/bin/nvcc
shift
cd "$(dirname "$0")"
[ $# -ge 1 ] || set -- */
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT

# Adds a mark to the first line of $1 that contains $3.
mark() {
    awk -v code="$2" -v text="$3" '
        !done && index($0, text) { sub(/[ \t]+$/, ""); $0 = $0 " //~ " code; done = 1 }
        { print }
        END { exit !done }' "$1" > "$1.marked" || { echo "$1: no line contains '$3'" >&2; return 1; }
    mv "$1.marked" "$1"
}

for folder in "$@"; do
    folder=${folder%/}
    source=$folder/kernel.cu
    [ -f "$source" ] || continue
    awk '/^\/\/ build: /{ n++ } /^#/{ exit } n { print n "\t" $0 }' "$source" > "$made/plan"
    for number in $(cut -f1 "$made/plan" | sort -nu); do
        grep "^$number	" "$made/plan" | cut -f2- > "$made/lines"
        read -r file flags < <(sed -n 's/^\/\/ build: //p' "$made/lines")
        # shellcheck disable=SC2086  # the flags are several words
        (cd "$folder" && "$nvcc" -std=c++17 $flags -ptx kernel.cu -o "$made/body.ptx")
        {
            echo "// Made by make.sh from kernel.cu: nvcc -std=c++17 $flags"
            grep '^// heist: ' "$made/lines" || true
            cat "$made/body.ptx"
        } > "$made/file.ptx"
        sed -n 's/^\/\/ mark: //p' "$made/lines" | while read -r code text; do mark "$made/file.ptx" "$code" "$text"; done
        cp "$made/file.ptx" "$folder/$file"
        echo "$folder/$file"
    done
done
