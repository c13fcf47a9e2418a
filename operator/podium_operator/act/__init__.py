"""Actions of the operator: create pods, requeue, migrate, rebalance, and back off."""
