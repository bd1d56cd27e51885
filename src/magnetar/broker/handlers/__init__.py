"""What each command does; one module per subject, each with its table `HANDLERS`."""
