"""The broker. `remoting` and `kafka` serve the two dialects and never import each other; the modules beside them are shared."""
