"""The policy pack: what no stack of this program may contain.

Rules are pure functions, in modules by subject; `catalogue` names them all, and `__main__` hands
them to Pulumi's policy SDK, which serves them to whichever engine deploys the stack. Pulumi runs
the pack with this folder as its working directory: no module here may be called as one of Python's
own or of a dependency.
"""
