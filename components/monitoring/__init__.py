"""Metrics, alerts, dashboards and logs."""
