#!/usr/bin/env bash
# The binary interface: whether programs that were compiled against the last release run with this library.
#   tools/abi/abi.sh check BUILD [DUMP]   compares the headers with a saved dump, tools/abi/cotangent.abi.gz
#   tools/abi/abi.sh save BUILD [DUMP]    writes it anew
# The dump is that of a library without code, made from the public headers, so it needs no build with debug information;
# tests/check_symbols.sh sees to it that the real one exports the same. Needs abidw and abidiff (Debian's abigail-tools).
set -u
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
action=${1:-} build_dir=$(cd "${2:-$source_dir/build}" && pwd) || exit 2
dump=${3:-$source_dir/tools/abi/cotangent.abi.gz}
here=$source_dir/tools/abi
# CT_HEADERS: another folder of headers, for the tests of this script
include=${CT_HEADERS:-$source_dir/include} generated=$build_dir/generated/include

for tool in abidw abidiff awk gzip "${CC:-cc}"; do
    if ! command -v "$tool" >/dev/null; then
        echo "skipped: there is no $tool; Debian's abigail-tools has abidw and abidiff" >&2
        exit 77
    fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

headers=("$include"/cotangent.h "$include"/cotangent/*.h "$generated"/cotangent/*.h)
{
    for header in "${headers[@]}"; do echo "#include \"$header\""; done
    awk -f "$source_dir/tools/headers.awk" -f "$here/stub.awk" "${headers[@]}"
} >"$work/cotangent.c"
"${CC:-cc}" -g -O0 -w -shared -fPIC -I"$include" -I"$generated" -Wl,-soname,libcotangent "$work/cotangent.c" -o "$work/libcotangent.so" || exit 2

case $action in
save)
    abidw --no-show-locs --no-corpus-path --no-comp-dir-path "$work/libcotangent.so" >"$work/abi" || exit 2
    gzip -9nc "$work/abi" >"$dump"
    echo "$dump: $(stat -c %s "$dump") bytes"
    ;;
check)
    gzip -dc "$dump" >"$work/saved.abi" || exit 2
    abidiff --leaf-changes-only --no-show-locs "$work/saved.abi" "$work/libcotangent.so" >"$work/report"
    status=$?
    if [ $((status & 3)) -ne 0 ]; then # the tool failed
        cat "$work/report" >&2
        exit 2
    fi
    if awk -f "$here/verdict.awk" "$work/report"; then
        echo "compatible with the saved interface"
    else
        echo "programs of the last release would not run with this. A release that means it: make abi-save" >&2
        exit 1
    fi
    ;;
*)
    echo "usage: tools/abi/abi.sh check|save [BUILD [DUMP]]" >&2
    exit 2
    ;;
esac
