"""The pages: values from the state, and fragments of HTML from the values."""
