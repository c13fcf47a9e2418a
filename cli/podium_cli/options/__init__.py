"""Options that several commands have: how they are declared, checked and turned into values."""
