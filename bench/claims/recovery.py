"""
Jobs that survive: what is injected into them, and what becomes of them.

    alone   scripts of one process, killed at random moments and started again

The last line is JSON.
"""

import argparse
import json
import sys

MODES = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=sorted(MODES))
    mode = parser.parse_args().mode
    print(json.dumps(MODES[mode]()))


if __name__ == "__main__":
    sys.exit(main())
