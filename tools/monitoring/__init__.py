"""Dashboards for Grafana and alert rules for Prometheus, as data: `make generate` writes them into the chart."""
