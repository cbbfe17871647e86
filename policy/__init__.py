"""Policy pack: rules for all stacks of this program.

Rules are pure functions, in modules by subject. `catalogue` lists all rules. `__main__` passes them
to Pulumi's policy SDK, which serves them to the engine that deploys the stack. Pulumi runs the pack
with this folder as its working directory. So no module here may have the name of a module of Python
or of a dependency.
"""
