"""Python code that runs inside the cluster."""
