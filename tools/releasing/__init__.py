"""Parts of `make release`: checks, the image, the chart, and the statement of provenance."""
