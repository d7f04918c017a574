"""Members of a share group (KIP-932), and what the group owes."""
