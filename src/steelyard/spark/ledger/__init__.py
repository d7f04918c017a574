"""The ledger's tables: the streaming query, where they are kept, and their command."""
