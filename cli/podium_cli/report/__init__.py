"""Reports as self-contained HTML files: values (model), drawings (svg, charts), templates, and a file for each page."""
