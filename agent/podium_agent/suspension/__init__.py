"""Ways to take a running trial off its GPU and to bring it back."""
