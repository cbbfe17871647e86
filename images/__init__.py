"""The container images of the cluster: their contents, tags and builds."""
