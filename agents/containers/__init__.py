"""Import users' images from registries and files into a cache of directories.

The package runs as the user, in a job or on a login node. It needs only the jail's Python with its
standard library. `spank/containers` starts containers from the cache.
"""
