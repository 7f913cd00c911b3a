"""Files: written whole or not at all, checksummed, and never pickle."""
