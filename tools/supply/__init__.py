"""What a release is made of, and how that is proven: `./dev release` composes these."""
