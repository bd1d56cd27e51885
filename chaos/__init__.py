"""A cluster of real processes under seeded faults, and what must hold of its history: `./dev chaos`."""
