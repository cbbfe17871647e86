"""Settings of where the stack's services run, and of the resources that they reserve."""

from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import Field, model_validator

from components.settings.types import (
    LabelKey,
    MemoryMiB,
    Model,
    Number,
    ObjectName,
    Seconds,
    SelectedValue,
    cross_field,
)

Service = Literal[
    "default",
    "accounting",
    "bridge",
    "controller",
    "database",
    "exporter",
    "grafana",
    "jail-server",
    "login",
    "logs",
    "longchecks",
    "monitoring",
    "ondemand",
    "reconciler",
    "rest",
]
"""A service of the stack, which can run on any Kubernetes node. A service and its pods have the
same name. `default` stands for all services, and for the stack's own Jobs."""
DEFAULT: Final = "default"


class Toleration(Model):
    """A taint of Kubernetes nodes that pods tolerate."""

    key: LabelKey | None = None
    """Key of the taint; by default every key."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """Equal compares the taint's value, Exists ignores it."""
    value: str | None = None
    """Value of the taint, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; by default every effect."""
    seconds: Seconds | None = None
    """Seconds that pods stay after a NoExecute taint appears; by default, they stay forever."""

    @model_validator(mode="after")
    def _fits_kubernetes(self) -> Self:
        if self.operator == "Equal" and (self.key is None or self.value is None):
            raise cross_field(
                "operator",
                "Equal: this operator compares the value of a taint, so it needs 'key' and "
                "'value'; add both, or set 'operator' to 'Exists'",
            )
        if self.operator == "Exists" and self.value is not None:
            raise cross_field(
                "value",
                f"'{self.value}': has no effect, because 'operator' is not 'Equal'; set "
                "'operator' to 'Equal', or remove 'value'",
            )
        if self.seconds is not None and self.effect != "NoExecute":
            raise cross_field(
                "seconds",
                f"{self.seconds}: has no effect, because 'effect' is not 'NoExecute'; set "
                "'effect' to 'NoExecute', or remove 'seconds'",
            )
        return self


class Place(Model):
    """Kubernetes nodes for the pods of a service, and the reservations of the main container."""

    node_selector: dict[LabelKey, SelectedValue] = {}
    """Labels of the Kubernetes nodes that the pods may run on."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of Kubernetes nodes that the pods tolerate."""
    priority_class: ObjectName | None = None
    """PriorityClass of the pods."""
    cpus: Annotated[float, Field(gt=0), Number] | None = None
    """CPUs that the main container reserves, such as 0.5. There is no limit."""
    memory: MemoryMiB | None = None
    """Memory that the main container reserves, such as '4GiB'. There is no limit."""


Placement = dict[Service, Place]


def check_placement(placement: Placement) -> None:
    """Refuse `cpus` and `memory` in `default`, because they would apply to all services."""
    default = placement.get(DEFAULT, Place())
    for name in ("cpus", "memory"):
        if getattr(default, name) is not None:
            raise cross_field(
                f"placement.{DEFAULT}.{name}",
                f"{getattr(default, name)}: placement.default cannot set '{name}' for all "
                f"services; set it for each service, such as placement.controller.{name}",
            )


def place_of(service: str, placement: Placement) -> Place:
    """Return the place of a service or Job: its own fields override those of `default`."""
    fields: dict[str, Any] = {}
    for name in (DEFAULT, service):
        place = placement.get(cast(Service, name), Place())
        fields |= {key: getattr(place, key) for key in place.model_fields_set}
    return Place.model_construct(**fields)
