"""
Conway's Game of Life on a torus, in strips that exchange their edges.
"""

import numpy as np

import brambling as br

SIZE, STRIPS, TURNS = 16, 4, 24
GLIDER = [(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)]


def start(_: None, ctx: br.Context) -> np.ndarray:
    world = np.zeros((SIZE, SIZE), dtype=np.uint8)
    for row, column in GLIDER:
        world[row, column] = 1
    return np.split(world, ctx.partitions)[ctx.partition].copy()


def edge(strip: np.ndarray, offset: int) -> np.ndarray:
    return strip[0 if offset < 0 else -1]


def step(strip: np.ndarray, halo: dict[int, np.ndarray]) -> np.ndarray:
    padded = np.vstack([halo[-1], strip, halo[1]])
    turned = [
        np.roll(padded, (down, right), axis=(0, 1))
        for down in (-1, 0, 1)
        for right in (-1, 0, 1)
        if (down, right) != (0, 0)
    ]
    near = np.sum(turned, axis=0)[1:-1]
    return ((near == 3) | ((strip == 1) & (near == 2))).astype(np.uint8)


p = br.Program("life")
world = p.dataset("world", partitions=STRIPS)
p.update(world, start)
with p.loop(TURNS):
    p.update(world, step, p.exchange(world, neighbours=(-1, 1), wrap=True, send=edge))
for row in np.vstack(p.run()[world]):
    print("".join(".#"[cell] for cell in row))
