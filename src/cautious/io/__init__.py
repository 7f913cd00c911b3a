"""Files: written atomically, with checksums, and never pickle."""
