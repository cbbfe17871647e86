"""Users, keys and rights: who may do what in Slurm, in Linux and in Kubernetes."""
