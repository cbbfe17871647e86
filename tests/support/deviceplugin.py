"""A Kubernetes device plugin that gives pods other devices under the names of GPUs.

The plugin uses version `v1beta1` of the kubelet's protocol (source:
k8s.io/kubelet/pkg/apis/deviceplugin). This file defines only the messages and fields that the
plugin needs, with the protocol's field numbers.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.support.cluster import Cluster

_PACKAGE = "v1beta1"
_FOLDER = "var/lib/kubelet/device-plugins"
_FIELD = descriptor_pb2.FieldDescriptorProto
_FIELDS: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Empty": {},
    "Options": {},
    "RegisterRequest": {
        "version": (1, "text"),
        "endpoint": (2, "text"),
        "resource_name": (3, "text"),
    },
    "Device": {"ID": (1, "text"), "health": (2, "text")},
    "ListAndWatchResponse": {"devices": (1, "Device*")},
    "ContainerAllocateRequest": {"devices_ids": (1, "text*")},
    "AllocateRequest": {"container_requests": (1, "ContainerAllocateRequest*")},
    "DeviceSpec": {
        "container_path": (1, "text"),
        "host_path": (2, "text"),
        "permissions": (3, "text"),
    },
    "ContainerAllocateResponse": {"devices": (3, "DeviceSpec*")},
    "AllocateResponse": {"container_responses": (1, "ContainerAllocateResponse*")},
}


def _messages() -> dict[str, Any]:
    """Return the classes of the messages, by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="deviceplugin.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            base = kind.rstrip("*")
            label = _FIELD.LABEL_REPEATED if kind != base else _FIELD.LABEL_OPTIONAL
            one = message.field.add(name=field, number=number, label=label)
            if base == "text":
                one.type = _FIELD.TYPE_STRING
            else:
                one.type, one.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{base}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _FIELDS
    }


_MESSAGES = _messages()


@dataclass(frozen=True)
class Offer:
    """Devices of one resource. Each device makes files of the machine visible in the pod."""

    resource: str
    """Name of the resource, such as `nvidia.com/gpu`."""
    devices: Mapping[str, Mapping[str, str]]
    """For each device id, a mapping from paths in the pod to paths on the machine."""


@contextmanager
def offered(cluster: Cluster, machine: str, *offers: Offer) -> Iterator[None]:
    """Let the kubelet of a Kubernetes node give these devices to pods that request them."""
    process = cluster.computer(machine).attrs["State"]["Pid"]
    folder = Path(f"/proc/{process}/root/{_FOLDER}")
    with ExitStack() as stack:
        for number, offer in enumerate(offers):
            stack.enter_context(_served(offer, folder, f"test-{os.getpid()}-{number}.sock"))
        yield


@contextmanager
def _served(offer: Offer, folder: Path, socket: str) -> Iterator[None]:
    ended = Event()
    with ThreadPoolExecutor() as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((_handlers(offer, ended),))
        server.add_insecure_port(f"unix:{folder / socket}")
        server.start()
        try:
            _register(folder, socket, offer.resource)
            yield
        finally:
            ended.set()
            server.stop(grace=1).wait()
            (folder / socket).unlink(missing_ok=True)


def _register(folder: Path, socket: str, resource: str) -> None:
    request = _MESSAGES["RegisterRequest"](
        version=_PACKAGE, endpoint=socket, resource_name=resource
    )
    with grpc.insecure_channel(f"unix:{folder / 'kubelet.sock'}") as channel:
        call = channel.unary_unary(
            f"/{_PACKAGE}.Registration/Register",
            request_serializer=_bytes,
            response_deserializer=_MESSAGES["Empty"].FromString,
        )
        call(request, timeout=10)


def _handlers(offer: Offer, ended: Event) -> grpc.GenericRpcHandler:
    def options(_request: Any, _context: Any) -> Any:
        return _MESSAGES["Options"]()

    def watched(_request: Any, _context: Any) -> Iterator[Any]:
        devices = [_MESSAGES["Device"](ID=name, health="Healthy") for name in offer.devices]
        yield _MESSAGES["ListAndWatchResponse"](devices=devices)
        ended.wait()

    def allocated(request: Any, _context: Any) -> Any:
        responses = [_given(offer, one.devices_ids) for one in request.container_requests]
        return _MESSAGES["AllocateResponse"](container_responses=responses)

    return grpc.method_handlers_generic_handler(
        f"{_PACKAGE}.DevicePlugin",
        {
            "GetDevicePluginOptions": _handler(grpc.unary_unary_rpc_method_handler, options),
            "ListAndWatch": _handler(grpc.unary_stream_rpc_method_handler, watched),
            "Allocate": _handler(grpc.unary_unary_rpc_method_handler, allocated, "AllocateRequest"),
        },
    )


def _handler(kind: Any, answer: Callable[[Any, Any], Any], request: str = "Empty") -> Any:
    return kind(
        answer, request_deserializer=_MESSAGES[request].FromString, response_serializer=_bytes
    )


def _bytes(message: Any) -> bytes:
    encoded: bytes = message.SerializeToString()
    return encoded


def _given(offer: Offer, ids: Sequence[str]) -> Any:
    files = {pods: machines for name in ids for pods, machines in offer.devices[name].items()}
    specs = [
        _MESSAGES["DeviceSpec"](container_path=pods, host_path=machines, permissions="rw")
        for pods, machines in files.items()
    ]
    return _MESSAGES["ContainerAllocateResponse"](devices=specs)
