"""`steelyard pipeline incident` and `archive-offsets` (docs/INCIDENT.md)."""
