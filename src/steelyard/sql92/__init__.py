"""SQL92 conditions over message properties: `parser` parses, `expressions` evaluates them."""
