"""Reports to the API server: GPUNode status, trial status and pod conditions."""
