"""`podium report`: one self-contained HTML file. model: what it says; svg, charts: how it is drawn; page: the file."""
