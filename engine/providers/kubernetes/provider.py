"""Check, diff, create, update, delete and read Kubernetes objects of any kind."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final, cast

from engine.errors import CancelledPartway, CheckError, EngineError, PartialFailure
from engine.providers import Diff, Operation, Resource
from engine.providers.kubernetes import waiting
from engine.providers.kubernetes.api import Api, ApiError
from engine.providers.kubernetes.cluster import (
    Cluster,
    find_cluster,
    read_settings,
    unreachable,
)
from engine.providers.kubernetes.manifests import (
    AUTONAMED,
    PATCH_FORCE,
    PROPAGATION,
    RELEASE,
    SKIP_AWAIT,
    Kind,
    Manifest,
    Ref,
    adopted_fields,
    annotation,
    checked,
    checkpoint,
    differences,
    field_manager,
    imported,
    is_managed_by,
    is_namespaced,
    is_patch,
    is_pulumis,
    is_true,
    kind_of,
    metadata,
    mutability,
    refreshed,
    to_server,
)
from engine.values import Properties, Unknown, contains_unknown, format_path

_ADOPTIONS: Final = 5
_DEFAULT_NAMESPACE: Final = "default"
_FOREGROUND: Final = "Foreground"
_PROPAGATIONS: Final = {"orphan": "Orphan", "background": "Background"}
# Kinds for which skipAwait also skips the wait for deletion, as in Pulumi's provider.
_SKIP_DELETE: Final = frozenset(
    {
        "DaemonSet",
        "Deployment",
        "Job",
        "Namespace",
        "Pod",
        "ReplicationController",
        "StatefulSet",
    }
)


@dataclass(frozen=True)
class _Target:
    """One object, and the options for applying it."""

    ref: Ref
    manager: str
    force: bool
    patch: bool


class KubernetesProvider:
    """The provider of one cluster. The engine calls its methods from several threads."""

    def __init__(self, config: Properties, *, preview: bool) -> None:
        self._settings = read_settings(config)
        self._preview = preview
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._api: Api | None = None
        self._probed: tuple[str | None] | None = None
        if self._settings.known:
            self._cluster = find_cluster(self._settings)
        elif not preview:
            raise EngineError(
                "kubernetes provider: kubeconfig or context depends on an output that has no value"
                " yet; first deploy the resource with this output"
            )

    # -- the provider protocol ----------------------------------------------------------------

    def check(self, resource_type: str, urn: str, olds: Properties, news: Properties) -> Properties:
        """Return the inputs with name and namespace.

        Raises CheckError, or EngineError if the cluster is unreachable.
        """
        if resource_type == RELEASE:
            return self._checked_release(olds, news)
        kind = kind_of(resource_type, news)
        if kind.kind.endswith("List") and "items" in news:
            raise CheckError(
                "kind", f"{kind.kind} is a list; create a separate resource for each item"
            )
        patch = is_patch(resource_type, kind)
        if patch and not metadata(news).get("name"):
            raise CheckError(
                "metadata.name",
                "is required in a Patch resource; set it to the name of the existing object to"
                " patch",
            )
        self._require_reachable()
        return checked(kind, urn, olds, news, self._default_namespace(kind))

    def diff(self, old: Resource, news: Properties) -> Diff:
        if old.type == RELEASE:
            changed = differences(old.inputs, news)
            moved = tuple(path[0] for path in changed if path in (("name",), ("namespace",)))
            return Diff(tuple(map(format_path, changed)), moved)
        kind = kind_of(old.type, news)
        paths = differences(old.inputs, news)
        if is_patch(old.type, kind):
            rules = mutability(Kind("", ""), {}, True, True)
        else:
            rules = mutability(
                kind, old.inputs, self._settings.config_map_mutable, self._settings.secret_mutable
            )
        replaces = tuple(format_path(p) for p in paths if rules.forces_replacement(p))
        return Diff(
            tuple(format_path(path) for path in paths),
            replaces,
            bool(replaces) and self._keeps_its_name(old, news),
        )

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        """Apply an object that must not exist yet, and wait until it is ready."""
        target = self._target(resource_type, urn, inputs, {})
        api = self._connected()
        api.await_kind(target.ref.kind, op.cancelled)
        existing = api.get(target.ref)
        if existing is not None and not target.patch:
            existing = self._cleared(api, target, existing, op)
        live = self._apply(api, target, inputs, existing)
        return target.ref.id, self._ready(api, target, live, inputs, op, created=True)

    def update(self, old: Resource, news: Properties, op: Operation) -> Properties:
        """Apply the new inputs, and wait until they have taken effect."""
        target = self._target(old.type, old.urn, news, old.outputs)
        api = self._connected()
        live = api.get(target.ref)
        if live is not None:
            live = _without_old(api, target, live, news, op, obsolete=waiting.has_failed(live))
        applied = self._apply(api, target, news, live)
        return self._ready(api, target, applied, news, op, created=live is None)

    def delete(self, old: Resource, op: Operation) -> None:
        """Remove the object and wait until it is gone."""
        target = self._target(old.type, old.urn, old.inputs, old.outputs, old.id)
        reason = self._unreachable_reason()
        if reason:
            if self._settings.delete_unreachable:
                return
            raise EngineError(
                f"{target.ref}: cannot be deleted: {reason}; if the cluster no longer exists, set"
                " deleteUnreachable: true on the provider: the engine then only removes the"
                " objects from the state"
            )
        api = self._connected()
        try:
            live = api.get(target.ref)
            if live is None:
                return
            if target.patch:
                api.apply(target.ref, _identity(target.ref), target.manager, force=False)
                return
            policy = _PROPAGATIONS.get(annotation(old.inputs, PROPAGATION).lower(), _FOREGROUND)
            api.delete(target.ref, policy)
        except ApiError as error:
            if error.missing:
                return  # the kind is gone, and so are all its objects
            raise
        if is_true(old.inputs, SKIP_AWAIT) and target.ref.kind.kind in _SKIP_DELETE:
            return
        self._gone(api, target, live, old, op)

    def read(
        self,
        resource_type: str,
        urn: str,
        resource_id: str,
        inputs: Properties,
        outputs: Properties | None = None,
    ) -> tuple[str, Properties, Properties] | None:
        """Return the current inputs and outputs, or None if the object does not exist.

        If the id is empty, a create was interrupted: return the object only if this resource
        created it.
        """
        if resource_type == RELEASE and outputs is not None:
            return resource_id, inputs, outputs  # this engine does not read Helm's records
        if self._unreachable_reason() and self._settings.delete_unreachable:
            return None
        target = self._target(resource_type, urn, inputs, outputs or {}, resource_id)
        try:
            live = self._connected().get(target.ref)
        except ApiError as error:
            if error.missing:
                return None
            raise
        if live is None or not (resource_id or is_managed_by(live, target.manager)):
            return None
        now = cast(Properties, refreshed(inputs, live) if inputs else imported(live))
        return target.ref.id, now, checkpoint(live, now, target.manager)

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        """Return the result of a dry run, or else the old outputs updated with the inputs.

        Raises EngineError if the server would refuse the update.
        """
        foreseen = cast(Properties, _merged(_settled(old.outputs) if old else {}, inputs))
        if contains_unknown(inputs) or self._cluster is None or resource_type == RELEASE:
            return foreseen
        urn, outputs = (old.urn, old.outputs) if old else ("", {})
        target = self._target(resource_type, urn, inputs, outputs)
        api = self._connected()
        try:
            live = api.get(target.ref)
            if old is None and live is not None:
                if self._settings.upsert or target.patch or is_pulumis(live):
                    return foreseen  # no dry run: the update may delete the object first
                raise _taken(target.ref)
            applied = self._apply(api, target, inputs, live, dry_run=True)
        except ApiError as error:
            if error.missing or error.unauthorized:
                # The update will create the namespace or the kind, or has more rights.
                return foreseen
            raise
        return cast(Properties, _settled(applied) if old is None else applied)

    def secret_outputs(self, resource_type: str) -> frozenset[str]:
        """Return the fields with the contents of Secrets."""
        secret = resource_type in ("kubernetes:core/v1:Secret", "kubernetes:core/v1:SecretPatch")
        return frozenset({"data", "stringData"}) if secret else frozenset()

    # -- helpers ------------------------------------------------------------------------------

    def _checked_release(self, olds: Properties, news: Properties) -> Properties:
        """Return the inputs of a Helm release, which this engine can preview but not create.

        Keep inputs that Pulumi's plugin added, such as the chart's objects: without them, an
        unchanged release would show changes. Raises CheckError if an update changes a release.
        """
        inputs = {**olds, **news}
        if not self._preview and differences(olds, inputs):
            raise CheckError(
                "",
                "this engine cannot create or change Helm releases; deploy this stack with the"
                " `pulumi` command",
            )
        return inputs

    def _target(
        self,
        resource_type: str,
        urn: str,
        inputs: Properties,
        outputs: Properties,
        resource_id: str | None = None,
    ) -> _Target:
        kind = kind_of(resource_type, inputs or outputs)
        meta = metadata(inputs)
        namespace, name = meta.get("namespace"), meta.get("name")
        if resource_id:
            namespace, _, name = resource_id.rpartition("/")
        return _Target(
            Ref(kind, str(namespace) if namespace else None, str(name)),
            field_manager(urn, inputs, outputs),
            is_true(inputs, PATCH_FORCE) or self._settings.patch_force,
            is_patch(resource_type, kind),
        )

    def _apply(
        self,
        api: Api,
        target: _Target,
        inputs: Properties,
        live: Manifest | None,
        *,
        dry_run: bool = False,
    ) -> Manifest:
        force = target.force
        if live is not None and not target.patch:
            if dry_run:
                # Force the dry run, because the update first takes over conflicting fields
                # (`_adopt`).
                force = force or adopted_fields(live, target.manager) is not None
            else:
                _adopt(api, target, live)
        manifest = to_server(inputs)
        return api.apply(target.ref, manifest, target.manager, force=force, dry_run=dry_run)

    def _cleared(
        self, api: Api, target: _Target, existing: Manifest, op: Operation
    ) -> Manifest | None:
        """Return the existing object if this resource may take it over, or None if it is gone.

        An interrupted run can leave an object that is not in the state. Its field manager shows
        that the object belongs to this resource. Such an object is taken over. Such a Job is
        deleted instead, because the template of a Job cannot change. Raises EngineError for an
        object that does not belong to this resource, unless upsertExistingObjects is set.
        """
        owned = is_managed_by(existing, target.manager)
        obsolete = owned and target.ref.kind.kind == "Job"
        left = _without_old(api, target, existing, {}, op, obsolete=obsolete)
        if left is None or self._settings.upsert or owned:
            return left
        raise _taken(target.ref)

    def _ready(
        self,
        api: Api,
        target: _Target,
        live: Manifest,
        inputs: Properties,
        op: Operation,
        *,
        created: bool,
    ) -> Properties:
        if target.patch:
            return checkpoint(live, inputs, target.manager)
        try:
            ready = waiting.until_ready(api, target.ref, live, inputs, op, created=created)
        except waiting.NotReady as error:
            outputs = checkpoint(error.live, inputs, target.manager)
            failure = CancelledPartway if error.cancelled else PartialFailure
            raise failure(target.ref.id, outputs, str(error)) from error
        except EngineError as error:
            outputs = checkpoint(live, inputs, target.manager)
            raise PartialFailure(target.ref.id, outputs, str(error)) from error
        return checkpoint(ready, inputs, target.manager)

    def _gone(
        self, api: Api, target: _Target, live: Manifest, old: Resource, op: Operation
    ) -> None:
        try:
            waiting.until_gone(api, target.ref, metadata(live).get("uid"), old.inputs, op)
        except waiting.NotReady as error:
            failure = CancelledPartway if error.cancelled else PartialFailure
            raise failure(target.ref.id, old.outputs, str(error)) from error

    def _keeps_its_name(self, old: Resource, news: Properties) -> bool:
        """Return whether a replacement would have the name and namespace of the old object."""
        before, after = metadata(old.inputs), metadata(news)
        same_place = (before.get("namespace") or _DEFAULT_NAMESPACE) == (
            after.get("namespace") or _DEFAULT_NAMESPACE
        )
        return (
            not is_true(news, AUTONAMED) and before.get("name") == after.get("name") and same_place
        )

    def _default_namespace(self, kind: Kind) -> str | None:
        known = is_namespaced(kind)
        if known is None and self._cluster is not None:
            known = self._connected().namespaced(kind)
        if known is False:
            return None
        if self._cluster is not None:
            return self._cluster.namespace
        return self._settings.namespace or _DEFAULT_NAMESPACE

    def _connected(self) -> Api:
        """Return the API, created on first use. Raises EngineError without a valid kubeconfig."""
        with self._lock:
            if self._api is None:
                if self._cluster is None:
                    raise EngineError(
                        "kubernetes provider: kubeconfig: the value is unknown in this preview;"
                        " first deploy the cluster with `up`"
                    )
                self._api = Api(self._cluster)
            return self._api

    def _unreachable_reason(self) -> str | None:
        """Return why the cluster does not answer.

        Check only once, and do not import the slow client.
        """
        with self._lock:
            if self._probed is None:
                self._probed = (None if self._cluster is None else unreachable(self._cluster),)
            return self._probed[0]

    def _require_reachable(self) -> None:
        reason = self._unreachable_reason()
        if reason:
            raise EngineError(reason)


def _without_old(
    api: Api, target: _Target, live: Manifest, inputs: Properties, op: Operation, *, obsolete: bool
) -> Manifest | None:
    """Return the live object, or None if it had to go and is now gone.

    Delete the object if it is ``obsolete``. If it is being deleted, wait until it is gone.
    """
    if obsolete:
        api.delete(target.ref, _FOREGROUND)
    elif not metadata(live).get("deletionTimestamp"):
        return live
    waiting.until_gone(api, target.ref, metadata(live).get("uid"), inputs, op)
    return None


def _taken(ref: Ref) -> EngineError:
    return EngineError(
        f"{ref}: already exists, and this stack did not create it; delete the object, or"
        " choose another name. To manage the existing object with this stack, set"
        " upsertExistingObjects: true on the provider"
    )


def _adopt(api: Api, target: _Target, live: Manifest | None) -> None:
    """Move fields that were set without server-side apply to this resource's field manager."""
    for left in reversed(range(_ADOPTIONS)):
        handed = adopted_fields(live, target.manager) if live else None
        if live is None or handed is None:
            return
        try:
            api.set_managed_fields(target.ref, live, handed)
            return
        except ApiError as error:
            # A controller has changed the object meanwhile: read it again.
            if error.status not in (409, 422) or not left:
                raise
        live = api.get(target.ref)


def _identity(ref: Ref) -> Manifest:
    """Return a manifest with only the object's identity.

    If a manager applies this manifest, the manager gives up all its fields.
    """
    meta: Manifest = {"name": ref.name}
    if ref.namespace:
        meta["namespace"] = ref.namespace
    return {"apiVersion": ref.kind.api_version, "kind": ref.kind.kind, "metadata": meta}


# Fields that only the server sets, and that an update changes.
_UNSETTLED: Final = ("status",)
_UNSETTLED_METADATA: Final = ("creationTimestamp", "managedFields", "resourceVersion", "uid")


def _settled(live: dict[str, Any]) -> Manifest:
    """Return a live object without fields that an update changes, or that a dry run makes up."""
    kept = {k: v for k, v in live.items() if k not in _UNSETTLED and not k.startswith("__")}
    meta = metadata(kept)
    if meta:
        kept["metadata"] = {k: v for k, v in meta.items() if k not in _UNSETTLED_METADATA}
    return kept


def _merged(old: Any, new: Any) -> Any:
    """Merge new inputs into old outputs. A new list replaces an old list as a whole."""
    if isinstance(old, dict) and isinstance(new, dict) and not isinstance(new, Unknown):
        return {
            **{key: value for key, value in old.items() if key not in new},
            **{key: _merged(old.get(key), value) for key, value in new.items()},
        }
    return new
