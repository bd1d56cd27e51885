"""Several broker processes of one machine behind one port."""
