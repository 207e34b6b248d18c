"""Examples that come with the package: `brambling run NAME`."""
