"""Storage that outlives pods: the jail and its volumes, snapshots, and dumps of the database."""
