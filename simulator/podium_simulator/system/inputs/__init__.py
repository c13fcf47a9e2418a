"""What a simulation begins with: scenario, searches, arrivals, faults and durations."""
