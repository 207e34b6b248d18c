"""The tool itself, tried with systems that are none: `pytest bench/peers`."""
