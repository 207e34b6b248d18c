"""Small data sets of many kinds, and weights for their rows."""

import numpy as np

# Of every six sets, five have weights: forty in all.
SEEDS = range(48)


def weights_for(seed, rows):
    """None, or weights: of many kinds, some of them zero and some huge."""
    rng = np.random.default_rng(1_000 + seed)
    weights = rng.uniform(0.1, 3.0, rows)
    match seed % 6:
        case 0:
            return None
        case 1:
            return weights
        case 2:
            weights[rng.random(rows) < 0.4] = 0.0
        case 3:
            weights = rng.integers(0, 4, rows).astype(float)
        case 4:
            weights *= 1e12
            weights[rng.random(rows) < 0.2] = 0.0
        case 5:
            # A few rows beside which the others count for little.
            weights[rng.random(rows) < 0.05] *= 1e6
    weights[:2] = weights.max()
    return weights


def table(seed):
    """Rows of columns of unequal size and offset; more than one block of them in every fourth set."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(4_097, 9_500)) if seed % 4 == 3 else int(rng.integers(40, 900))
    columns = int(rng.integers(1, 12))
    sizes, offsets = 10.0 ** rng.uniform(-2, 2, columns), 10.0 ** rng.uniform(-2, 3, columns)
    return rng.normal(size=(rows, columns)) * sizes + offsets


def heaps(seed):
    """Rows in heaps far from one another, and a row of each."""
    rng = np.random.default_rng(seed)
    clusters, columns = int(rng.integers(2, 7)), int(rng.integers(1, 10))
    rows = int(rng.integers(4_097, 6_000)) if seed % 4 == 3 else int(rng.integers(60, 900))
    middles = np.arange(clusters)[:, None] * 20.0 + rng.normal(size=(clusters, columns))
    members = np.arange(rows) % clusters
    X = middles[members] + rng.normal(size=(rows, columns)) + 10.0 ** rng.integers(-1, 3)
    return X, X[:clusters].copy()


def targets(X, seed, count=1):
    rng = np.random.default_rng(2_000 + seed)
    spread = np.maximum(X.std(axis=0), 1e-12)
    y = (X / spread) @ rng.normal(size=(X.shape[1], count)) + rng.normal(size=(len(X), count)) + 3.0
    return y[:, 0] if count == 1 else y


def classes(X, seed, count):
    rng = np.random.default_rng(3_000 + seed)
    margins = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=(X.shape[1], count)) + rng.gumbel(size=(len(X), count))
    return margins.argmax(axis=1)
