"""New pods get Slurm as their scheduler, and limits that fit the job that Slurm will give them."""

from typing import Any

import pytest

from agents.bridge import size
from agents.bridge.admission import patch
from agents.bridge.podspec import Spec
from agents.bridge.wanted import Wanted
from tests.unit.agents.bridge import things

Object = dict[str, Any]
WANTED = things.wanted(things.rule())
ALL = WANTED.model_copy(update={"namespaces": ("lab",)})


def container(**resources: Any) -> Object:
    return {"name": "main", **({"resources": resources} if resources else {})}


def completed(
    spec: Object,
    namespace: str = "lab",
    wanted: Wanted = WANTED,
    annotations: dict[str, str] | None = None,
) -> Object:
    """Return a pod's spec after the patch."""
    spec = {"schedulerName": "slurm-bridge", **spec}
    pod = {"metadata": {"name": "train", "annotations": annotations or {}}, "spec": spec}
    changes = patch(pod, namespace, wanted)
    return {**spec, **{one["path"].removeprefix("/spec/"): one["value"] for one in changes}}


def limits(spec: Object) -> list[Object]:
    return [one["resources"]["limits"] for one in spec["containers"]]


def slurms(spec: Object) -> Object:
    """Return what Slurm counts for a pod, in CPUs and MiB."""
    found = size.allowed(things.read(spec, Spec))
    return {"cpu": float(found["cpu"]), "memory": float(found["memory"]) / 2**20}


# --- Scheduler -----------------------------------------------------------------------------------


def test_all_pods_of_a_configured_namespace_are_scheduled_by_slurm() -> None:
    given = {"schedulerName": "default-scheduler", "containers": [container()]}
    found = completed(given, wanted=ALL)
    assert found["schedulerName"] == "slurm-bridge"
    assert limits(found) == [{"cpu": "1000m", "memory": "536870912"}]


@pytest.mark.parametrize(("namespace", "wanted"), [("lab", WANTED), ("web", ALL)])
def test_pods_of_other_namespaces_stay_as_they_are(namespace: str, wanted: Wanted) -> None:
    given = {"schedulerName": "default-scheduler", "containers": [container()]}
    assert completed(given, namespace, wanted) == given


# --- Limits --------------------------------------------------------------------------------------


def test_pod_with_limits_stays_as_it_is() -> None:
    amounts = {"cpu": "500m", "memory": "1Gi"}
    given = {"containers": [container(requests=amounts, limits=amounts)]}
    pod = {"metadata": {}, "spec": {"schedulerName": "slurm-bridge", **given}}
    assert patch(pod, "lab", ALL) == []


def test_only_container_may_use_the_whole_cpus_of_its_job() -> None:
    found = completed({"containers": [container(requests={"cpu": "1500m", "memory": "1Gi"})]})
    assert limits(found) == [{"cpu": "2000m", "memory": "1073741824"}]
    assert found["containers"][0]["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi"}


def test_containers_share_the_whole_cpus_of_their_job() -> None:
    given = [container(requests={"cpu": cpu}) for cpu in ("1", "500m", "100m")]
    found = completed({"containers": given})
    assert [one["cpu"] for one in limits(found)] == ["1133m", "633m", "233m"]


def test_container_without_a_request_beside_others_has_a_small_one() -> None:
    given = [container(requests={"cpu": "2"}), container()]
    found = completed({"containers": given})
    assert [one["cpu"] for one in limits(found)] == ["2450m", "550m"]
    assert slurms(found) == {"cpu": 3, "memory": 1024}


def test_container_with_a_limit_leaves_the_rest_to_the_others() -> None:
    given = [
        container(requests={"cpu": "100m"}, limits={"cpu": "1500m"}),
        container(requests={"cpu": "1"}),
    ]
    found = completed({"containers": given})
    assert [one["cpu"] for one in limits(found)] == ["1500m", "1500m"]
    assert slurms(found)["cpu"] == 3


def test_annotation_with_more_cpus_raises_the_limit() -> None:
    given = {"containers": [container(requests={"cpu": "100m"})]}
    found = completed(given, annotations={"slurmstack.dev/cpu-per-task": "3"})
    assert limits(found)[0]["cpu"] == "3000m"


def test_limit_without_a_request_counts_as_the_request() -> None:
    found = completed({"containers": [container(limits={"cpu": "3"})]})
    assert limits(found) == [{"cpu": "3", "memory": "536870912"}]
    assert slurms(found) == {"cpu": 3, "memory": 512}


def test_init_container_may_use_what_the_others_use_after_it() -> None:
    given = {
        "initContainers": [container(), {**container(), "restartPolicy": "Always"}],
        "containers": [container(requests={"cpu": "2", "memory": "1Gi"})],
    }
    found = completed(given)
    first, sidecar = (one["resources"]["limits"] for one in found["initContainers"])
    assert first == {"cpu": "3000m", "memory": str(1536 * 2**20)}
    assert sidecar == {"cpu": "550m", "memory": str(512 * 2**20)}
    # The init container does not make the job larger.
    assert slurms(found)["memory"] == 1536


def test_requests_of_the_pod_itself_limit_the_pod() -> None:
    own = {"requests": {"cpu": "2", "memory": "2Gi"}}
    found = completed({"containers": [container(), container()], "resources": own})
    assert found["resources"] == {**own, "limits": {"cpu": "2", "memory": "2Gi"}}
    assert not any(one.get("resources", {}).get("limits") for one in found["containers"])


@pytest.mark.parametrize("resources", [None, {}, {"requests": None, "limits": None}])
def test_empty_resources_are_like_missing_ones(resources: Any) -> None:
    given = [{"name": "main", "resources": resources}]
    assert limits(completed({"containers": given})) == [{"cpu": "1000m", "memory": "536870912"}]


@pytest.mark.parametrize("name", ["cpu", "memory"])
@pytest.mark.parametrize("zero", ["0", "0m", "0.0"])
def test_limit_of_zero_is_refused_because_it_would_not_limit(name: str, zero: str) -> None:
    none = {"limits": {name: zero}}
    main = container(limits={"cpu": "1", "memory": "1Gi"})
    for spec in (
        {"containers": [container(**none)]},
        {"containers": [main], "initContainers": [container(**none)]},
        {"containers": [main], "resources": none},
    ):
        with pytest.raises(
            ValueError, match=f"limits.{name}: '{zero}': Kubernetes would not limit"
        ):
            completed(spec)
        with pytest.raises(ValueError, match="would not limit"):
            size.allowed(things.read(spec, Spec))


@pytest.mark.parametrize("request_", [{"cpu": "0", "memory": "0"}, {"cpu": "1n", "memory": "1"}])
def test_small_request_gets_a_limit(request_: Object) -> None:
    others = container(requests={"cpu": "1", "memory": "1Gi"})
    for containers in ([container(requests=request_)], [others, container(requests=request_)]):
        found = limits(completed({"containers": containers}))[-1]
        assert float(found["cpu"].removesuffix("m")) >= 1
        assert int(found["memory"]) >= 1


def test_unknown_quantity_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected a quantity of Kubernetes"):
        completed({"containers": [container(requests={"cpu": "much"})]})
