"""The bridge: Slurm decides where and when pods of Kubernetes run; see docs/bridge.md.

Each pod, or gang of pods, has one job in Slurm. The job holds the CPUs, memory and GPUs that the
pods use, on the nodes whose machines run the pods.

`cluster` and `records` read Kubernetes and Slurm, `plan` decides, and `carry` acts. `nodes` and
`server` answer the questions of nodes.
"""
