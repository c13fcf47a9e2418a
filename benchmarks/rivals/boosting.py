"""Train gradient-boosted trees on two classes of 8 clusters each: the second task of bench-rivals.

One JSON line per step. A step is `--work` rounds of boosting, each one tree. Six hyper-parameters are flags, as
in boosting.yaml. The data are the same for every trial.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # one thread, set before numpy starts its threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--max_leaf_nodes", type=int, default=8)
    parser.add_argument("--min_samples_leaf", type=int, default=1)
    parser.add_argument("--subsample", type=float, default=1.0, help="share of the rows of each tree")
    parser.add_argument("--max_features", type=float, default=1.0, help="share of the columns of each split")
    parser.add_argument("--min_impurity_decrease", type=float, default=1e-7)
    parser.add_argument("--epochs", type=int, default=40, help="steps")
    parser.add_argument("--work", type=int, default=1, help="rounds of boosting in a step")
    args = parser.parse_args()

    import numpy as np
    from sklearn.datasets import make_classification
    from sklearn.ensemble import GradientBoostingClassifier

    inputs, labels = make_classification(
        n_samples=12_000,
        n_features=20,
        n_informative=10,
        n_redundant=4,
        n_classes=2,
        n_clusters_per_class=8,
        class_sep=1.0,
        flip_y=0.02,
        random_state=0,
    )
    cut = 6000
    held_out, truth = inputs[cut:], labels[cut:]
    model = GradientBoostingClassifier(
        learning_rate=args.learning_rate,
        n_estimators=args.epochs * args.work,
        max_depth=None,
        max_leaf_nodes=args.max_leaf_nodes,
        min_samples_leaf=args.min_samples_leaf,
        subsample=args.subsample,
        max_features=args.max_features,
        min_impurity_decrease=args.min_impurity_decrease,
        random_state=0,
    )
    scores = np.zeros(len(truth))

    def report(done: int, fitted: Any, _locals: object) -> None:
        scores[:] += args.learning_rate * fitted.estimators_[done, 0].predict(held_out)
        if (done + 1) % args.work == 0:
            accuracy = float(((scores > 0) == truth).mean())
            print(json.dumps({"epoch": (done + 1) // args.work, "val_acc": accuracy}))

    model.fit(inputs[:cut], labels[:cut], monitor=report)


if __name__ == "__main__":
    main()
