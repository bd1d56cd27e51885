"""`python -m magnetar` is the command `magnetar`."""

from magnetar.cli.main import main

if __name__ == "__main__":
    main()
