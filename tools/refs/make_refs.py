#!/usr/bin/env python3
"""make_refs.py FOLDER: writes every file of tests/refs."""
import importlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
folder = sys.argv[1] if len(sys.argv) > 1 else "tests/refs"
os.makedirs(folder, exist_ok=True)
total = 0
for module in ("elementwise", "reduce", "shape", "index", "linalg", "create", "conv", "pool", "resample", "deform", "norm", "loss", "attention", "rnn", "nn_modules", "optim"):
    if not os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), module + ".py")):
        continue
    for name, count in importlib.import_module(module).write(folder):
        print("%-12s %4d cases" % (name, count))
        total += count
size = sum(os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder))
print("%d cases, %d kB" % (total, size // 1024))
