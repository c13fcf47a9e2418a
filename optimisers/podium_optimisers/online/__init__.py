"""Online scheduling on m CPUs and k GPUs: rules with proven ratios, adversaries and reallocation."""
