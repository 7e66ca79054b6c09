#!/usr/bin/env python3
"""`cotangent bench` and PyTorch side by side: the same workloads, workload by workload in one run.

  compare.py --cotangent build/bin/cotangent [--threads 1,2] [--rounds 2] [--time 0.3] [--json FILE] [FILTER]

PyTorch runs twice over, with its defaults and tuned, and in both memory formats where it has two; the best of all counts.
A ratio above 1 says that Cotangent is faster.
"""
import argparse
import json
import os
import re
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument('filter', nargs='?', default='')
parser.add_argument('--cotangent', required=True)
parser.add_argument('--threads', default='1,2')
parser.add_argument('--rounds', type=int, default=2)
parser.add_argument('--time', type=float, default=0.3)
parser.add_argument('--json', default='')
args = parser.parse_args()

# Memory that malloc keeps, in huge pages, and the widest vectors: what helps PyTorch most.
TUNED = {'ATEN_CPU_CAPABILITY': 'avx512', 'MALLOC_MMAP_MAX_': '0', 'MALLOC_TRIM_THRESHOLD_': '17179869184',
         'MALLOC_ARENA_MAX': '1', 'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}


class Torch:
    """A PyTorch that measures workloads on request."""

    def __init__(self, name, threads, env):
        self.name = name
        command = [sys.executable, os.path.join(here, 'torch_bench.py'), '--serve', '--threads', str(threads), '--min-time', str(args.time)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})

    def ask(self, workload):
        self.process.stdin.write(workload + '\n')
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {'error': 'PyTorch ended'}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def ask_cotangent(workload, threads):
    command = [args.cotangent, 'bench', '^' + workload + '$', '--threads', str(threads), '--time', str(args.time), '--json']
    out = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return json.loads(out.splitlines()[-1]) if out else {'error': 'no result'}


def cost(result):
    """Milliseconds, or nanoseconds a call; infinite where there is no result."""
    return result.get('median_ms', result.get('ns', float('inf')))


def compare(workload, threads, peers, has_formats):
    best = {}

    def note(who, result):
        if cost(result) < cost(best.get(who, {})):
            best[who] = result

    for _ in range(args.rounds):
        note('cotangent', ask_cotangent(workload, threads))
        for peer in peers:
            note(peer.name, peer.ask(workload))
            if workload in has_formats:
                note(peer.name, peer.ask(workload + '_cl'))
    return best


def show(workload, threads, best):
    ours = cost(best.get('cotangent', {}))
    who = min((k for k in best if k != 'cotangent'), key=lambda k: cost(best[k]), default=None)
    theirs = cost(best[who]) if who else float('inf')
    unit = 'ns' if 'ns' in best.get('cotangent', {}) else 'ms'
    rate = best.get('cotangent', {})
    extra = f"{rate['gflops']:8.1f} GFLOP/s" if 'gflops' in rate else f"{rate['gb_s']:8.2f} GB/s" if 'gb_s' in rate else ''
    if theirs == float('inf'):
        print(f'{workload:34} {threads:2} {ours:12.4f} {unit} {"":14} {"":8} {extra}', flush=True)
    else:
        print(f'{workload:34} {threads:2} {ours:12.4f} {unit} {theirs:12.4f} {unit} {theirs / ours:7.2f} {extra:18} {who}', flush=True)


def main():
    listed = subprocess.run([args.cotangent, 'bench', args.filter or '.', '--list'], capture_output=True, text=True)
    if listed.returncode:
        sys.exit(listed.stderr.strip())
    ours = listed.stdout.split()
    torch_names = set(subprocess.run([sys.executable, os.path.join(here, 'torch_bench.py'), '--list'], capture_output=True, text=True).stdout.split())
    has_formats = {n for n in torch_names if n + '_cl' in torch_names}
    log = open(args.json, 'w') if args.json else None
    print(f'{"workload":34} {"T":>2} {"cotangent":>15} {"PyTorch":>15} {"ratio":>7}')
    for threads in (int(t) for t in args.threads.split(',')):
        peers = [Torch('default', threads, {}), Torch('tuned', threads, TUNED)]
        for peer in peers:
            peer.ask('')  # no workload: the answer says that it has started, and nobody is measured beside it
        for workload in ours:
            best = compare(workload, threads, peers if workload in torch_names else [], has_formats)
            show(workload, threads, best)
            if log:
                log.write(json.dumps({'name': workload, 'threads': threads, **best}) + '\n')
                log.flush()
        for peer in peers:
            peer.close()


main()
