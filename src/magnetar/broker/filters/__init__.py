"""Entry filters: which entries a subscription gets, decided before they are sent."""
