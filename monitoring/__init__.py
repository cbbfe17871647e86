"""Dashboards and alerts of the cluster."""
