"""The HTTP server beside a cluster, which it asks as any client does: metrics and health."""
