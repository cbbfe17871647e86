"""Faults in engine/: the state, its secrets and its lock, and the order of operations."""

from typing import Final

from tests.mutants.fault import Fault

_UNIT: Final = "tests/unit/engine"

FAULTS: Final = (
    Fault(
        "a resource is deleted before its dependents",
        "engine",
        "engine/planning.py",
        "                before[target].add(resource)\n",
        "                before[resource].add(target)\n",
        f"{_UNIT}/test_planning.py::test_dependents_and_children_are_deleted_before_the_resource",
    ),
    Fault(
        "the state contains a secret as plain text",
        "engine",
        "engine/secrets.py",
        'return {SIGNATURE: SECRET, "ciphertext": crypter.encrypt(text)}',
        'return {SIGNATURE: SECRET, "plaintext": text}',
        f"{_UNIT}/programs/test_life.py::test_secrets_are_encrypted_in_state_and_marked_in_outputs",
    ),
    Fault(
        "a replacement is created while the old object has the same name",
        "engine",
        "engine/providers/kubernetes/provider.py",
        "            bool(replaces) and self._keeps_its_name(old, news),\n",
        "            bool(replaces) and not self._keeps_its_name(old, news),\n",
        f"{_UNIT}/providers/test_kubernetes_manifests.py"
        "::test_edit_replaces_an_object_only_if_the_api_requires_it",
    ),
    Fault(
        "the engine does not notice that the program no longer sets a key",
        "engine",
        "engine/values.py",
        "for key in sorted(old.keys() | new.keys()):",
        "for key in sorted(new.keys()):",
        f"{_UNIT}/test_values.py::test_differences_are_listed_by_path",
    ),
    Fault(
        "the engine requests a missing object again and again",
        "engine",
        "engine/providers/kubernetes/api.py",
        "_TRANSIENT: Final = frozenset({429, 502, 503, 504})",
        "_TRANSIENT: Final = frozenset({404, 429, 502, 503, 504})",
        f"{_UNIT}/providers/test_kubernetes_provider.py::test_missing_object_is_requested_once",
    ),
    Fault(
        "a failed update keeps the stack locked",
        "engine",
        "engine/lock.py",
        "        own.unlink(missing_ok=True)\n",
        "        own.touch()\n",
        f"{_UNIT}/test_lock.py::test_failed_update_releases_the_lock",
    ),
    Fault(
        "an edit of a file that looks like a quantity is not deployed",
        "engine",
        "engine/providers/kubernetes/manifests.py",
        '    ("spec", "hard", "*"),\n',
        '    ("spec", "hard", "*"),\n    ("data", "*"),\n',
        f"{_UNIT}/providers/test_kubernetes_manifests.py"
        "::test_text_that_looks_like_a_quantity_is_compared_as_text",
    ),
    Fault(
        "a protected resource is deleted",
        "engine",
        "engine/planning.py",
        "held = [resource for resource in condemned if resource.protect and not resource.delete]",
        "held = [resource for resource in condemned if resource.protect and resource.delete]",
        f"{_UNIT}/programs/test_options.py::test_one_protected_resource_prevents_every_deletion",
    ),
    Fault(
        "the engine takes over an object that it did not create",
        "engine",
        "engine/providers/kubernetes/provider.py",
        "        if left is None or self._settings.upsert or owned:\n",
        "        if left is None or self._settings.upsert or not owned:\n",
        f"{_UNIT}/providers/test_kubernetes_provider.py::test_create_refuses_an_existing_object",
    ),
    Fault(
        "other users may read the state",
        "engine",
        "engine/backend.py",
        '        with os.fdopen(handle, "w") as stream:\n',
        '        os.fchmod(handle, 0o644)\n        with os.fdopen(handle, "w") as stream:\n',
        f"{_UNIT}/programs/test_life.py::test_state_files_are_readable_only_by_the_owner",
    ),
)
