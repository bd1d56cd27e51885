"""Several broker processes of one machine under one supervisor."""
