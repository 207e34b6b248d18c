"""
The heat equation on a plate, in strips that exchange their edges until nothing changes.
"""

import numpy as np

import brambling as br

ROWS, COLUMNS, STRIPS = 64, 64, 4
PRECISION = 1e-4


def start(_: None, ctx: br.Context) -> np.ndarray:
    """A strip of a cold plate; the plate's upper edge is hot."""
    strip = np.zeros((ROWS // STRIPS, COLUMNS))
    if ctx.partition == 0:
        strip[0] = 1.0
    return strip


def edge(strip: np.ndarray, offset: int) -> np.ndarray:
    """What the neighbour above (-1) or below (1) needs."""
    return strip[0 if offset < 0 else -1]


def step(strip: np.ndarray, halo: dict[int, np.ndarray], ctx: br.Context) -> np.ndarray:
    """One step of Jacobi's method; the plate's edges keep their temperature."""
    above = halo.get(-1, strip[0])
    below = halo.get(1, strip[-1])
    padded = np.vstack([above, strip, below])
    new = strip.copy()
    new[:, 1:-1] = (padded[:-2, 1:-1] + padded[2:, 1:-1] + strip[:, :-2] + strip[:, 2:]) / 4
    if ctx.partition == 0:
        new[0] = strip[0]
    if ctx.partition == ctx.partitions - 1:
        new[-1] = strip[-1]
    return new


def change(new: np.ndarray, old: np.ndarray) -> float:
    return float(np.abs(new - old).max())


p = br.Program("heat")
plate = p.dataset("plate", partitions=STRIPS)
largest = p.dataset("largest change", value=np.inf)
turns = p.dataset("turns", value=0)
p.update(plate, start)
with p.loop(while_=lambda largest: largest > PRECISION, on=largest):
    halo = p.exchange(plate, neighbours=(-1, 1), send=edge)
    new = p.map(step, plate, halo)
    changed = p.reduce("max", p.map(change, new, plate))
    p.update(plate, lambda _, new: new.copy(), new)
    p.update(largest, lambda _, changed: changed, changed)
    p.update(turns, lambda turns: turns + 1)
result = p.run()

field = np.vstack(result["plate"])
print(f"{result['turns']} turns until no temperature changed by more than {PRECISION:g}")
print("temperature down the middle:", " ".join(f"{t:.3f}" for t in field[::8, COLUMNS // 2]))
