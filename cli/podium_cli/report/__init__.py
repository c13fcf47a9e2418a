"""Report of a search as one self-contained HTML file: values (model), drawings (svg, charts), file (page)."""
