"""Everything that is built or downloaded once: programs, file systems, images."""
