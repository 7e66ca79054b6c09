#!/usr/bin/env python3
"""Memory of training steps, here and in PyTorch: the most that was resident, less what was resident before the model was built.

  memory.py --cotangent build/bin/cotangent [--threads 2] [FILTER]

Each workload runs in a process of its own on both sides, PyTorch with its defaults.
"""
import argparse
import json
import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument('filter', nargs='?', default='^train_')
parser.add_argument('--cotangent', required=True)
parser.add_argument('--threads', default='2')
args = parser.parse_args()


def peak(command):
    lines = subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines()
    return json.loads(lines[-1]).get('peak_mb', float('nan')) if lines else float('nan')


names = subprocess.run([args.cotangent, 'bench', args.filter, '--list'], capture_output=True, text=True, check=True).stdout.split()
print(f'{"workload":34} {"cotangent":>12} {"PyTorch":>12}')
for name in names:
    only = '^' + name + '$'
    ours = peak([args.cotangent, 'bench', only, '--threads', args.threads, '--time', '0.2', '--json'])
    theirs = peak([sys.executable, os.path.join(here, 'torch_bench.py'), '--only', only, '--threads', args.threads, '--min-time', '0.2'])
    print(f'{name:34} {ours:8.1f} MiB {theirs:8.1f} MiB', flush=True)
