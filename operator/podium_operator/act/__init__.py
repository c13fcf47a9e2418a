"""What the operator does: create pods, requeue, migrate, rebalance, and back off."""
