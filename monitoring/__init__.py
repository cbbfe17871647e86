"""What people see of the cluster, and what they are told about: dashboards and alerts."""
