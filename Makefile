# The commands of this repository; README.md explains them. One profile (release) everywhere.

.PHONY: claims

# The acceptance: runs every point of bench/claims and prints the table. Fails if any is missed.
claims:
	cargo run --release -p xtask -- claims
