"""The Python that runs inside the cluster."""
