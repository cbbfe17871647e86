"""What needs another layout of CPUs than the nodes of the shared stack have."""
