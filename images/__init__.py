"""The container images of the cluster: what each is made of, its tag, and how it is built."""
