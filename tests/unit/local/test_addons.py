"""Kubernetes objects that every new local cluster contains."""

import json
from typing import Any

from local import addons
from local.configuration import DNS_SERVICE, VOLUMES

OBJECTS = addons.objects("slurmstack/system:1", "172.30.0.10")


def find(kind: str, name: str) -> dict[str, Any]:
    [found] = [o for o in OBJECTS if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def test_default_storage_class_is_shared_and_binds_immediately() -> None:
    storage_class = find("StorageClass", "shared")
    annotations = storage_class["metadata"]["annotations"]
    assert annotations["storageclass.kubernetes.io/is-default-class"] == "true"
    assert storage_class["volumeBindingMode"] == "Immediate"


def test_provisioner_creates_volumes_in_the_shared_directory() -> None:
    command = find("Deployment", "local-path-provisioner")["spec"]["template"]["spec"][
        "containers"
    ][0]["command"]
    assert find("StorageClass", "shared")["provisioner"] in command
    config = json.loads(find("ConfigMap", "local-path-provisioner")["data"]["config.json"])
    assert config == {"sharedFileSystemPath": VOLUMES}


def test_dns_has_the_address_that_kubelet_gives_to_pods() -> None:
    assert find("Service", "kube-dns")["spec"]["clusterIP"] == str(DNS_SERVICE)


def test_dns_never_caches_names_of_the_cluster() -> None:
    assert "disable denial cluster.local" in addons.corefile()
    assert "disable success cluster.local" in addons.corefile()


def test_addons_use_only_an_image_that_nodes_have() -> None:
    pods = [find("Deployment", name)["spec"]["template"]["spec"] for name in addons.DEPLOYMENTS]
    helper = json.loads(find("ConfigMap", "local-path-provisioner")["data"]["helperPod.yaml"])
    containers = [c for pod in [*pods, helper["spec"]] for c in pod["containers"]]
    assert {c["image"] for c in containers} == {"slurmstack/system:1"}
    assert {c["imagePullPolicy"] for c in containers} == {"IfNotPresent"}


def test_each_deployment_selects_its_own_pods() -> None:
    for name in addons.DEPLOYMENTS:
        spec = find("Deployment", name)["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_role_bindings_refer_to_existing_service_accounts() -> None:
    accounts = {o["metadata"]["name"] for o in OBJECTS if o["kind"] == "ServiceAccount"}
    bindings = [o for o in OBJECTS if o["kind"] in ("ClusterRoleBinding", "RoleBinding")]
    assert {subject["name"] for binding in bindings for subject in binding["subjects"]} == accounts
