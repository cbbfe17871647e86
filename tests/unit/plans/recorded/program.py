import pulumi
import pulumi_random as random
from pulumi import ResourceOptions as Options

config = pulumi.Config()
length = config.require_int("length")
protected = length if config.get_bool("bold") else 2
group = pulumi.ComponentResource("tests:index:Group", "group")
random.RandomPet("pet", length=length)
random.RandomPet("first", length=length, opts=Options(delete_before_replace=True))
random.RandomString(
    "text",
    length=8,
    keepers={"hidden": pulumi.Output.secret(f"hush-{length}"), "shown": str(length)},
    opts=Options(parent=group),
)
random.RandomPet("kept", length=protected, opts=Options(protect=True))
if length == 2:
    random.RandomPet("gone", length=2)
else:
    random.RandomPet("come", length=length)
if protected == 2:
    random.RandomPet("kept-too", length=2, opts=Options(protect=True))
