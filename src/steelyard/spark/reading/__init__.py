"""Topics as rows: what a read or a micro-batch covers, pulls, and columns of messages."""
