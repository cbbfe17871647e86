"""Settings of the Kubernetes operators that GPUs and fast networks require."""

from components.settings.types import ChartVersion, Model


class Operators(Model):
    """Helm charts of GPU and network card vendors."""

    install: bool | None = None
    """Install the charts that nodesets require; by default true if the stack creates the
    cluster."""
    driver: bool | None = None
    """Let NVIDIA's operator install the GPU driver and the container toolkit; by default true if
    the machines come without them."""
    gpu_version: ChartVersion = "v25.10.1"
    """Version of NVIDIA's chart gpu-operator."""
    network_version: ChartVersion = "25.10.0"
    """Version of NVIDIA's chart network-operator."""
    amd_version: ChartVersion = "0.20.0"
    """Version of AMD's chart amd-gpu, its device plugin."""
