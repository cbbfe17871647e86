"""The bridge: Slurm decides where and when pods of Kubernetes run.

Each pod, or gang of pods, has one job in Slurm. The job holds the CPUs, memory and GPUs that the
pods use, on the nodes whose machines run the pods.

So far, this package contains only the decisions. No program carries them out yet, and no stack
deploys it.
"""
