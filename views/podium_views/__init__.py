"""What people see of a search, wherever they look: its values, their text and their drawings. Pure."""
