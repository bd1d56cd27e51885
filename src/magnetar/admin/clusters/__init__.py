"""Routes about clusters, failure domains and isolation policies. See README.md."""
