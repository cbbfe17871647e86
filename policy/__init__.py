"""Policy pack: rules that the resources of every stack of this program must follow.

Rules are pure functions. Each module has one subject, and `catalogue` lists all rules. `__main__`
passes the rules to Pulumi's policy SDK. The engine that deploys the stack asks the SDK to check
each resource. Pulumi runs the pack with this folder as its working directory, so Python finds the
modules in this folder first. No module here may therefore have the same name as a module of Python
or of a dependency.
"""
