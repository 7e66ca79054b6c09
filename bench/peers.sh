#!/usr/bin/env bash
# Cotangent beside other libraries, on this machine, in one run:   bash bench/peers.sh BUILD [options of compare.py] [FILTER]
# PyTorch, with torchvision, is installed into a virtual environment outside the repository, once. COTANGENT_PEERS_PYTHON names a Python that
# has it already. The matrix products are also compared with OpenBLAS, BLIS and oneDNN, where those are installed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
[ $# -gt 0 ] && shift
command=$build/bin/cotangent
[ -x "$command" ] || { echo "error: $command is not built; run make first" >&2; exit 1; }

# What follows --threads among the options.
threads_of() {
    while [ $# -gt 1 ]; do
        [ "$1" != --threads ] || { echo "$2" && return; }
        shift
    done
    echo 1,all
}

python=${COTANGENT_PEERS_PYTHON:-}
if [ -z "$python" ]; then
    home=${XDG_CACHE_HOME:-$HOME/.cache}/cotangent-peers
    python=$home/bin/python
    if ! "$python" -c 'import torch, torchvision, numpy' 2>/dev/null; then
        echo "installing PyTorch into $home" >&2
        python3 -m venv "$home" || { echo "error: python3 -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
        "$python" -m pip install --quiet --upgrade pip
        "$python" -m pip install --quiet torch torchvision numpy
    fi
fi

if [ -f "$root/bench/peers/gemm_peers.c" ]; then
    peers=$build/bin/gemm_peers
    if ${CC:-cc} -O2 -std=c11 -I"$root" -I"$root/include" -I"$build/generated/include" "$root/bench/peers/gemm_peers.c" \
        "$build/tests/libcotangent_internal.a" -lm -lpthread -ldl -o "$peers"; then
        filter=${*: -1}
        case "${filter:-gemm}" in *gemm* | *matmul* | *bmm*)
            "$peers" -t "$(threads_of "$@")" || echo "gemm_peers ended with status $?; going on without it" >&2 ;;
        esac
    fi
fi
exec "$python" "$root/bench/peers/compare.py" --cotangent "$command" "$@"
