#!/usr/bin/env python3
"""metrics.py FILE: writes what scikit-learn and NumPy say of a few predictions, as C arrays, for tests/test_metrics.c.

    venv/bin/pip install numpy scikit-learn && venv/bin/python tools/refs/metrics.py tests/refs/metrics.inc
"""
import sys

import numpy as np
from sklearn import metrics as sk

random = np.random.default_rng(5)
out = ["/* Written by tools/refs/metrics.py: results of scikit-learn and NumPy. */"]


def put(name, values, kind="double"):
    flat = np.asarray(values).reshape(-1)
    texts = ["%d" % v if kind == "int64_t" else "%.17g" % v for v in flat]
    lines = [", ".join(texts[i:i + 12]) for i in range(0, len(texts), 12)]
    out.append("static const %s %s[] = {\n    %s};" % (kind, name, ",\n    ".join(lines)))


N, C = 60, 5
target = random.integers(0, C, N)
target[target == 3] = 1  # class 3 never is a target
logits = np.round(random.normal(size=(N, C)) * 8) / 8 + 0.75 * np.eye(C)[target]
for i in range(N):  # no ties at the top, where the rules of the two libraries may differ
    logits[i] += np.arange(C) / 64
best = logits.argmax(1)
put("class_logits", logits)
put("class_target", target, "int64_t")
put("class_accuracy", [sk.accuracy_score(target, best)])
put("class_top2", [sk.top_k_accuracy_score(target, logits, k=2, labels=range(C))])
put("class_confusion", sk.confusion_matrix(target, best, labels=range(C)), "int64_t")
p, r, f, s = sk.precision_recall_fscore_support(target, best, labels=range(C), zero_division=0)
put("class_precision", p)
put("class_recall", r)
put("class_f1", f)
put("class_support", s, "int64_t")
put("class_iou", sk.jaccard_score(target, best, labels=range(C), average=None, zero_division=0))
put("class_macro", list(sk.precision_recall_fscore_support(target, best, average="macro", zero_division=0)[:3])
    + [sk.jaccard_score(target, best, average="macro", zero_division=0)])
put("class_micro", list(sk.precision_recall_fscore_support(target, best, average="micro", zero_division=0)[:3])
    + [sk.jaccard_score(target, best, average="micro", zero_division=0)])
put("class_auc", [sk.roc_auc_score(target == c, logits[:, c]) if 0 < (target == c).sum() < N else np.nan
                  for c in range(C) if c != 3])

scores = np.round(random.normal(size=80) * 3) / 4  # many ties
label = (scores + random.normal(size=80) > 0.3).astype(int)
put("binary_score", scores)
put("binary_target", label, "int64_t")
put("binary_auc", [sk.roc_auc_score(label, scores)])

truth = np.round(random.normal(size=50) * 64) / 64 + 1000
guess = truth + np.round(random.normal(size=50) * 64) / 256
put("regression_target", truth)
put("regression_guess", guess)
put("regression_results", [sk.mean_absolute_error(truth, guess), sk.mean_squared_error(truth, guess),
                           np.sqrt(sk.mean_squared_error(truth, guess)), sk.r2_score(truth, guess)])

values = random.normal(size=30) + 1e6
weights = random.integers(1, 9, 30)
mean = np.average(values, weights=weights)
put("mean_values", values)
put("mean_weights", weights)
put("mean_results", [mean, np.sqrt(np.average((values - mean) ** 2, weights=weights)),
                     np.exp(np.average(values - 1e6 + 3, weights=weights))])
open(sys.argv[1] if len(sys.argv) > 1 else "tests/refs/metrics.inc", "w").write("\n".join(out) + "\n")
