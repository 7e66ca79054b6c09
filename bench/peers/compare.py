#!/usr/bin/env python3
"""`cotangent bench` and PyTorch side by side: the same workloads, workload by workload in one run.

  compare.py --cotangent build/bin/cotangent [--threads 1,all] [--rounds 2] [--time 0.3] [--json FILE] [FILTER]

PyTorch runs twice over, with its defaults and tuned, and in both memory formats where it has two; the best of all counts.
A ratio above 1 says that Cotangent is faster. A PyTorch that ends in the middle of a workload is started again for the next, and its row says
so. At the end: the geometric mean of the ratios, the rows below 1, and the line for the table of machines in bench/README.md.
"""
import argparse
import json
import math
import os
import platform
import signal
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument('filter', nargs='?', default='')
parser.add_argument('--cotangent', required=True)
parser.add_argument('--threads', default='1,all', help='numbers with commas between them; all: as many as the process may use')
parser.add_argument('--rounds', type=int, default=2)
parser.add_argument('--time', type=float, default=0.3)
parser.add_argument('--json', default='')
args = parser.parse_args()


def cpu_field(name):
    """The first value of a field of /proc/cpuinfo; empty where there is none."""
    try:
        with open('/proc/cpuinfo') as info:
            return next((line.split(':', 1)[1].strip() for line in info if line.split(':')[0].strip() == name), '')
    except OSError:
        return ''


def widest_vectors():
    """What ATEN_CPU_CAPABILITY is, or may be set to here, at most: PyTorch ends with an illegal instruction above it. None: leave it alone."""
    if os.environ.get('ATEN_CPU_CAPABILITY'):
        return os.environ['ATEN_CPU_CAPABILITY']
    flags = set(cpu_field('flags').split())
    if {'avx512f', 'avx512bw', 'avx512dq', 'avx512vl', 'fma'} <= flags:
        return 'avx512'
    return 'avx2' if {'avx2', 'fma'} <= flags else None


# Memory that malloc keeps, in huge pages, and the widest vectors: what helps PyTorch most.
TUNED = {'MALLOC_MMAP_MAX_': '0', 'MALLOC_TRIM_THRESHOLD_': '17179869184', 'MALLOC_ARENA_MAX': '1',
         'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}
if widest_vectors():
    TUNED['ATEN_CPU_CAPABILITY'] = widest_vectors()


def how_it_ended(code):
    """An exit status in words."""
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f'exit status {code}'


class Torch:
    """A PyTorch that measures workloads on request, started again after it has ended."""

    def __init__(self, name, threads, env):
        self.name, self.env = name, {**os.environ, **env}
        self.command = [sys.executable, os.path.join(here, 'torch_bench.py'), '--serve', '--threads', str(threads), '--min-time', str(args.time)]
        self.process = None
        self.trouble = ''  # why it does not start

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.env)
        answer = self.exchange('')  # no workload: the answer says that it has started, and nobody is measured beside it
        if 'crashed' in answer:
            self.trouble = answer['crashed']
        return not self.trouble

    def exchange(self, workload):
        try:
            self.process.stdin.write(workload + '\n')
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ''
        if line:
            return json.loads(line)
        code, self.process = self.process.wait(), None
        return {'crashed': how_it_ended(code)}

    def ask(self, workload):
        if self.trouble or (not self.process and not self.start()):
            return {'crashed': self.trouble}
        return self.exchange(workload)

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def ask_cotangent(workload, threads):
    command = [args.cotangent, 'bench', '^' + workload + '$', '--threads', str(threads), '--time', str(args.time), '--json']
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        return {'crashed': done.stderr.strip() or how_it_ended(done.returncode)}
    if not lines:  # not a workload of this machine: standard error says why
        return {'absent': done.stderr.strip().removeprefix(workload).strip() or 'there is no such workload'}
    return json.loads(lines[-1])


def cost(result):
    """Milliseconds, or nanoseconds a call; infinite where there is no result."""
    return result.get('median_ms', result.get('ns', float('inf')))


def compare(workload, threads, peers, has_formats):
    """The best result of each library, and what went wrong, by library."""
    best, wrong = {}, {}

    def note(who, result):
        if cost(result) < cost(best.get(who, {})):
            best[who] = result
        if 'crashed' in result:
            wrong[who] = f"{who} crashed: {result['crashed']}"
        elif 'absent' in result:
            wrong[who] = result['absent']

    for _ in range(args.rounds):
        note('cotangent', ask_cotangent(workload, threads))
        for peer in peers:
            note(peer.name, peer.ask(workload))
            if workload in has_formats:
                note(peer.name, peer.ask(workload + '_cl'))
    return best, wrong


def show(workload, threads, best, wrong):
    """Prints a row; returns the ratio, or None."""
    ours = cost(best.get('cotangent', {}))
    who = min((k for k in best if k != 'cotangent'), key=lambda k: cost(best[k]), default=None)
    theirs = cost(best[who]) if who else float('inf')
    unit = 'ns' if 'ns' in best.get('cotangent', {}) else 'ms'
    rate = best.get('cotangent', {})
    extra = f"{rate['gflops']:8.1f} GFLOP/s" if 'gflops' in rate else f"{rate['gb_s']:8.2f} GB/s" if 'gb_s' in rate else ''
    ratio = theirs / ours if math.isfinite(theirs) and math.isfinite(ours) else None
    columns = [f'{workload:34} {threads:3}', f'{ours:12.4f} {unit}' if math.isfinite(ours) else f'{"none":>15}',
               f'{theirs:12.4f} {unit}' if math.isfinite(theirs) else f'{"":15}', f'{ratio:7.2f}' if ratio else f'{"":7}', f'{extra:18}', who or '']
    columns += [f'({text})' for text in wrong.values()]
    print(' '.join(columns).rstrip(), flush=True)
    return ratio


def summary(threads, ratios, version):
    if not ratios:
        return
    mean = math.exp(sum(math.log(r) for r in ratios.values()) / len(ratios))
    below = sorted((r, name) for name, r in ratios.items() if r < 1)
    print(f'\n{threads} threads: geometric mean {mean:.2f} over {len(ratios)} rows, {len(below)} below 1')
    for ratio, name in below:
        print(f'  {ratio:5.2f}  {name}')
    machine = cpu_field('model name') or platform.processor() or platform.machine()
    vectors = widest_vectors() or platform.machine()
    print(f'| {machine}, {vectors} | {version} | {threads} | {len(ratios)} | {mean:.2f} | {len(below)} | {below[0][0]:.2f} {below[0][1]} |' if below else
          f'| {machine}, {vectors} | {version} | {threads} | {len(ratios)} | {mean:.2f} | 0 | |')
    print(flush=True)


def numbers_of_threads():
    usable = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    try:
        counts = [usable if word == 'all' else int(word) for word in args.threads.split(',')]
    except ValueError:
        sys.exit(f"error: '{args.threads}' is not a list of numbers of threads")
    return list(dict.fromkeys(counts))  # all may be one that was named


def main():
    listed = subprocess.run([args.cotangent, 'bench', *([args.filter] if args.filter else []), '--list'], capture_output=True, text=True)
    if listed.returncode:
        sys.exit(listed.stderr.strip())
    ours = listed.stdout.split()
    theirs = subprocess.run([sys.executable, os.path.join(here, 'torch_bench.py'), '--list'], capture_output=True, text=True)
    if theirs.returncode:
        print(f'PyTorch does not start ({how_it_ended(theirs.returncode)}), so ours stands alone:\n{theirs.stderr.strip()}', flush=True)
    torch_names = set(theirs.stdout.split())
    has_formats = {n for n in torch_names if n + '_cl' in torch_names}
    version = subprocess.run([sys.executable, '-c', 'import torch; print("PyTorch", torch.__version__)'], capture_output=True, text=True).stdout.strip()
    log = open(args.json, 'w') if args.json else None
    print(f'{version or "no PyTorch"}, tuned with vectors of {widest_vectors() or "its own choice"}', flush=True)
    print(f'{"workload":34} {"T":>3} {"cotangent":>15} {"PyTorch":>15} {"ratio":>7}')
    for threads in numbers_of_threads():
        peers = [Torch('default', threads, {}), Torch('tuned', threads, TUNED)] if torch_names else []
        ratios = {}
        for peer in peers:
            if not peer.start():
                print(f'PyTorch ({peer.name}) does not start: {peer.trouble}', flush=True)
        for workload in ours:
            best, wrong = compare(workload, threads, peers if workload in torch_names else [], has_formats)
            ratio = show(workload, threads, best, wrong)
            if ratio:
                ratios[workload] = ratio
            if log:
                log.write(json.dumps({'name': workload, 'threads': threads, **best}) + '\n')
                log.flush()
        for peer in peers:
            peer.close()
        summary(threads, ratios, version)


main()
