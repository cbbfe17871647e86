import pytest

from agents.bridge.identity import IdentityError, identity
from agents.bridge.wishes import NAMES, WishError, Wishes, read
from tests.unit.agents.bridge.things import pod, rule, wanted

SLINKY = "slurmjob.slinky.slurm.net/"
OURS = "slurmstack.dev/"


def test_annotations_of_slinky_describe_the_job() -> None:
    annotations = {
        f"{SLINKY}account": "vision",
        f"{SLINKY}timelimit": "5",
        f"{SLINKY}mem-per-node": "8Gi",
        f"{SLINKY}cpu-per-task": "1500m",
        f"{SLINKY}exclusive": "true",
        f"{SLINKY}gres": "gpu:h100:2",
        f"{SLINKY}user-id": "1001",
        "example.org/account": "other",
    }

    assert read(annotations) == Wishes(
        account="vision",
        time_limit=5,
        memory_per_node=8192,
        cpus_per_task=2,
        exclusive=True,
        gres="gpu:h100:2",
        user="1001",
    )


def test_own_prefix_is_an_alias_and_wins() -> None:
    annotations = {f"{SLINKY}qos": "low", f"{OURS}qos": "high", f"{OURS}template": "no wish"}

    assert read(annotations) == Wishes(qos="high")


@pytest.mark.parametrize("name", NAMES)
def test_each_name_has_a_field(name: str) -> None:
    value = {"exclusive": "false", "mem-per-node": "1Gi"}.get(name, "7")

    assert read({f"{SLINKY}{name}": value}) != Wishes()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("timelimit", "1h", "'1h': expected a whole number"),
        ("timelimit", "0", "'0': expected a number of at least 1"),
        ("max-nodes", "-1", "'-1': expected a whole number"),
        ("exclusive", "yes", "'yes': expected 'true' or 'false'"),
        ("mem-per-node", "8GB", "'8GB': expected a quantity"),
        # A test with these would hang if the number were computed.
        ("cpu-per-task", "1e5000", "'1e5000': expected a quantity"),
        ("cpu-per-task", "1e999999", "'1e999999': expected a quantity"),
        ("cpu-per-task", "-1", "'-1': expected a quantity"),
        # Slurm would take this for one CPU.
        ("cpu-per-task", "65537", "'65537': expected at most 65533"),
        ("timelimit", "4294967296", "expected at most 4294967293"),
        ("timelimit", "9" * 5000, "expected at most 4294967293"),
        ("constraints", "cpu)|(gpu", "expected a closing parenthesis"),
        ("constraints", "(cpu", "expected a closing parenthesis"),
        ("account", "a\nb", "expected a text in one line"),
        ("acount", "lab", "unknown; did you mean 'account'?"),
    ],
)
def test_error_names_annotation_value_and_remedy(name: str, value: str, said: str) -> None:
    with pytest.raises(WishError) as error:
        read({f"{SLINKY}{name}": value})

    assert f"annotation '{SLINKY}{name}'" in str(error.value)
    assert said in str(error.value)
    assert "\n" not in str(error.value).replace(value, "")


# --- Identity ------------------------------------------------------------------------------------

RULES = wanted(
    rule("alice", 1001, accounts=("vision", "robots")),
    rule("bob", 1002, service_account="bot"),
)


def test_pod_without_annotations_acts_as_the_first_user_with_the_first_account() -> None:
    found = identity(pod(), Wishes(), RULES)

    assert (found.user, found.uid, found.account) == ("alice", 1001, "vision")


@pytest.mark.parametrize("wished", ["bob", "1002"])
def test_annotation_chooses_among_the_users_of_the_service_account(wished: str) -> None:
    found = identity(pod(content={"serviceAccountName": "bot"}), Wishes(user=wished), RULES)

    assert (found.user, found.account) == ("bob", None)


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        (Wishes(user="root"), "may act only as: alice"),
        (Wishes(user="0"), "may act only as: alice"),
        (Wishes(user="bob"), "may act only as: alice"),
        (Wishes(account="secret"), "may use only: vision, robots"),
        (Wishes(group="root"), "alice is a member only of: alice"),
        (Wishes(group="0"), "alice is a member only of: alice"),
    ],
)
def test_annotation_alone_gives_no_other_identity(wishes: Wishes, said: str) -> None:
    with pytest.raises(IdentityError, match=said):
        identity(pod(), wishes, RULES)


@pytest.mark.parametrize(
    ("wished", "gid"),
    [(None, 1001), ("alice", 1001), ("1001", 1001), ("lab", 3000), ("3000", 3000)],
)
def test_annotation_chooses_among_the_groups_of_the_user(wished: str | None, gid: int) -> None:
    rules = wanted(rule(groups={"lab": 3000}))
    assert identity(pod(), Wishes(group=wished), rules).gid == gid


def test_namespace_without_a_rule_has_no_identity() -> None:
    with pytest.raises(IdentityError, match=r"no rule in bridge\.users covers the namespace 'lab'"):
        identity(pod(), Wishes(), wanted(rule(namespace="other")))
