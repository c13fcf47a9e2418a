"""Tables and text files that other tools exported: read in bounded memory, or refused with the place and the cure."""
