"""Optional features of a round, one file each."""
