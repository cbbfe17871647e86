"""Import users' images from registries and files into a cache of directories.

The package runs as the user, in a job or on a login node. It needs only the jail's Python with the
standard library. The programs in `spank/containers` start containers from the cache.
"""
