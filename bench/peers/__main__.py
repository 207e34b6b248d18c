"""Brambling beside other systems: `python bench/peers --help`."""

import sys
from pathlib import Path

# The package `peers`, wherever this is called from; its modules must not stand for others of their names.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from peers.command import main  # noqa: E402

sys.exit(main())
