"""The consumer nodes, one package for each dialect."""
