"""Rules about pods: the rights that they have on their node, and the resources of the node that
they use."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from policy.allowed import Allowed
from policy.manifests import Container, at, containers, kind, pod
from policy.rule import About, Resource, Rule, over

# --- Rights --------------------------------------------------------------------------------------


def _privileged(resource: Resource, _: Allowed) -> Iterator[str]:
    return over(containers(resource), _unbounded)


def _unbounded(container: Container) -> Iterator[str]:
    if container.rights("privileged"):
        yield f"{container.name} is privileged"
    if "ALL" in container.capabilities("add"):
        yield f"{container.name} has every capability (ALL)"
    if "ALL" not in container.capabilities("drop"):
        yield f"{container.name} does not drop all capabilities (ALL)"


PRIVILEGED = Rule(
    About(
        "privileged",
        "No container is privileged, and each has only the capabilities that it lists",
        "a privileged container is root on its node, and users run their own code in containers",
        "set 'privileged: false' and capabilities.drop: [ALL], and list the needed capabilities "
        "in capabilities.add",
    ),
    _privileged,
)


def _host_namespaces(resource: Resource, _: Allowed) -> Iterator[str]:
    found = pod(resource)
    if found:
        yield from over(
            ("hostNetwork", "hostPID", "hostIPC"),
            lambda key: [f"the pods set {key}"] if found.spec.get(key) else [],
        )


HOST_NAMESPACES = Rule(
    About(
        "host-namespaces",
        "No pod uses the network, process or IPC namespace of its node",
        "such a pod sees other processes and connections of the node, and no NetworkPolicy applies"
        " to the pod",
        "remove hostNetwork, hostPID and hostIPC",
    ),
    _host_namespaces,
)


def _host_paths(resource: Resource, allowed: Allowed) -> Iterator[str]:
    def outside(found: tuple[str, str | None]) -> Iterator[str]:
        where, path = found
        if path is not None and not _below_any(path, allowed.host_paths):
            yield f"{where} mounts {path} of the node"

    return over(_paths_of_nodes(resource), outside)


def _paths_of_nodes(resource: Resource) -> Iterator[tuple[str, str | None]]:
    found = pod(resource)
    if found:
        yield from over(
            found.volumes(), lambda v: [(f"volume {v['name']}", at(v, "hostPath", "path"))]
        )
    if kind(resource) == "PersistentVolume":
        yield from over(
            ("hostPath", "local"),
            lambda key: [("the volume", at(resource.props, "spec", key, "path"))],
        )


def _below_any(path: str, places: tuple[str, ...]) -> bool:
    parts = PurePosixPath(path)
    return ".." not in parts.parts and any(parts.is_relative_to(place) for place in places)


HOST_PATHS = Rule(
    About(
        "host-paths",
        "No volume mounts a path of a node, except allowed paths",
        "a container that reads or writes files of the node is no longer isolated from the node",
        "mount a PersistentVolumeClaim, or add the path to policy.host_paths in the stack's config",
    ),
    _host_paths,
)


def _non_root(resource: Resource, _: Allowed) -> Iterator[str]:
    return over(containers(resource), _may_be_root)


def _may_be_root(container: Container) -> Iterator[str]:
    if container.rights("runAsUser") == 0:
        yield f"{container.name} runs as root"
    elif not container.rights("runAsNonRoot"):
        yield f"{container.name} runs as the user of its image, which may be root"


NON_ROOT = Rule(
    About(
        "non-root",
        "No container runs as root, unless its daemon requires it",
        "root in a container is root on the node, limited only by restrictions of the kernel",
        "set runAsNonRoot: true and a runAsUser other than 0 in the securityContext; if the "
        "daemon requires root, add the resource to policy.exceptions in the stack's config",
    ),
    _non_root,
)


_ADDED = "container site-"
"""Prefix of the names of containers that an operator adds with the setting
nodesets[].pod.init_containers."""


def _added_containers(resource: Resource, _: Allowed) -> Iterator[str]:
    return over((c for c in containers(resource) if c.name.startswith(_ADDED)), _powerful)


def _powerful(container: Container) -> Iterator[str]:
    if container.rights("runAsUser") == 0:
        yield f"{container.name} runs as root"
    if added := container.capabilities("add"):
        yield f"{container.name} has the capabilities {', '.join(added)}"


ADDED_CONTAINERS = Rule(
    About(
        "added-containers",
        "Containers that an operator adds to a nodeset do not run as root, and have no"
        " capabilities",
        "the exceptions for slurmd cover its whole pod, but only slurmd may run as root or have "
        "capabilities",
        "remove 'user' and 'capabilities' from the container in "
        "nodesets[].pod.init_containers, or add the nodeset to policy.exceptions",
    ),
    _added_containers,
)


# --- Resources -----------------------------------------------------------------------------------


def _requests(resource: Resource, _: Allowed) -> Iterator[str]:
    return over((c for c in containers(resource) if c.stays), _unreserved)


def _unreserved(container: Container) -> Iterator[str]:
    # Accept a limit instead of a request: if only a limit is set, Kubernetes uses the limit as the
    # request.
    both = [at(container.spec, "resources", key) or {} for key in ("requests", "limits")]
    for quantity in ("cpu", "memory"):
        if not any(one.get(quantity) for one in both):
            yield f"{container.name} requests no {quantity}"


REQUESTS = Rule(
    About(
        "requests",
        "Every container requests CPU and memory, except init containers that end",
        "a container without requests may start on a full node, and is killed there first",
        "set resources.requests.cpu and resources.requests.memory",
    ),
    _requests,
)


def _limits(resource: Resource, _: Allowed) -> Iterator[str]:
    found = pod(resource)
    if found:
        yield from over(found.containers(), _unlimited)
        yield from over(
            found.volumes(),
            lambda v: (
                [f"volume {v['name']} is in memory and has no sizeLimit"]
                if at(v, "emptyDir", "medium") == "Memory" and not at(v, "emptyDir", "sizeLimit")
                else []
            ),
        )


def _unlimited(container: Container) -> Iterator[str]:
    becomes_others = {"SETUID", "ALL"} & {*container.capabilities("add")}
    if becomes_others and not at(container.spec, "resources", "limits", "memory"):
        yield f"{container.name} may run users' processes, but has no memory limit"


LIMITS = Rule(
    About(
        "limits",
        "Containers that run users' processes, and volumes in memory, have a memory limit",
        "without a memory limit, the processes of one user could take all memory of the node",
        "set resources.limits.memory, and sizeLimit for an emptyDir in memory",
    ),
    _limits,
)
