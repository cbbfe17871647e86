"""Policy pack: rules for all stacks of this program.

Rules are pure functions. Each module has one subject, and `catalogue` lists all rules. `__main__`
passes the rules to Pulumi's policy SDK, which serves them to the engine that deploys the stack.
Pulumi runs the pack with this folder as its working directory. So no module here may have the same
name as a module of Python or of a dependency.
"""
