"""The effect of each command; one module per subject, each with its table `HANDLERS`."""
