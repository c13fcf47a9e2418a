"""Who proposes the parameters of trial number k: pure in the job's spec and k, so a restart changes nothing."""
