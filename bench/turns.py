#!/usr/bin/env python3
"""Builds of `cotangent` in turns, workload by workload, and the median of each: what differs between them, on a machine whose speed changes.

  turns.py [--threads 2] [--time 0.3] [--seconds 120] FILTER NAME=COTANGENT [NAME=COTANGENT ...]

Before and after each run the copy of `limit_copy_16M` is measured with the same threads. Processors of a virtual machine may share an L3 in one
minute and not in the next: then copies take half as long, and what one processor has written the other reads several times as slowly. With --far
MILLISECONDS runs between copies that take less are counted apart from the others (`far` and `near`), and runs between one of each are left out.
"""
import argparse
import collections
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument('filter')
parser.add_argument('builds', nargs='+', metavar='NAME=COTANGENT')
parser.add_argument('--threads', default='2')
parser.add_argument('--time', default='0.3')
parser.add_argument('--seconds', type=float, default=120)
parser.add_argument('--far', type=float, default=0)
args = parser.parse_args()


def bench(command, workloads, seconds):
    """The milliseconds of each workload."""
    done = subprocess.run([command, 'bench', workloads, '--threads', args.threads, '--time', seconds], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f'{command}: {done.stderr.strip()}')
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[0]: float(line[1]) for line in lines if len(line) > 2 and line[2] == 'ms'}


def main():
    builds = [build.split('=', 1) for build in args.builds]
    if any(len(build) != 2 for build in builds):
        sys.exit('error: a build is NAME=COTANGENT, as new=build/bin/cotangent')
    listed = subprocess.run([builds[0][1], 'bench', args.filter, '--list'], capture_output=True, text=True)
    if listed.returncode:
        sys.exit(listed.stderr.strip())

    def state():
        return 'far' if bench(builds[0][1], '^limit_copy_16M$', '0.03')['limit_copy_16M'] < args.far else 'near'

    taken = collections.defaultdict(list)
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        for workload in listed.stdout.split():
            for name, command in builds:
                before = state()
                measured = bench(command, f'^{workload}$', args.time)
                if before == state() and workload in measured:
                    taken[workload, before, name].append(measured[workload])
    for workload, which in sorted({(w, s) for w, s, _ in taken}):
        columns = []
        for name, _ in builds:
            runs = taken[workload, which, name]
            columns.append(f'{name} {statistics.median(runs):.4f} ms of {len(runs)}' if runs else f'{name} none')
        print(f'{workload:40} {which if args.far else "":5}', '   '.join(columns))


try:
    main()
except OSError as error:
    sys.exit(f'error: {error}')
