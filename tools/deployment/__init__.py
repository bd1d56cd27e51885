"""What the files of `deploy/` start, and the tools that check them: `./dev deploy`."""
