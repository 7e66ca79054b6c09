"""Compares the lines of bench/device.c with those of torch_gpu.py, row by row: a ratio above 1 is ours faster.
Usage: python3 compare_gpu.py OURS.jsonl TORCH.jsonl"""
import json
import math
import sys


def rows(path):
    found = {}
    for line in open(path):
        if line.startswith('{'):
            row = json.loads(line)
            found[row['name']] = row
    return found


ours, theirs = rows(sys.argv[1]), rows(sys.argv[2])
logs = []
for name, row in ours.items():
    other = theirs.get(name)
    if 'error' in row:
        print(f"{name:48} {row['error']}")
    elif other:
        ratio = other['ms'] / row['ms']
        logs.append(math.log(ratio))
        memory = f"{row['peak_mib']:9.0f} MiB, theirs {other['peak_mib']:.0f}" if name.startswith('train/') else ''
        print(f"{name:48} {row['ms']:9.4f} ms {other['ms']:9.4f} {ratio:6.2f} {memory}")
    else:
        print(f"{name:48} {row['ms']:9.4f} ms")
if logs:
    print(f'geometric mean of {len(logs)} rows: {math.exp(sum(logs) / len(logs)):.2f}')
