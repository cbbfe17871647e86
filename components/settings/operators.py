"""What GPUs and fast networks need of the cluster before a pod can have them."""

from components.settings.types import ChartVersion, Model


class Operators(Model):
    """Helm charts of the makers of GPUs and network cards."""

    install: bool | None = None
    """Install them, those that nodesets need; by default where the stack makes the cluster."""
    driver: bool | None = None
    """Let NVIDIA's operator install the GPUs' driver and the container toolkit; by default where
    machines come without."""
    gpu_version: ChartVersion = "v25.10.1"
    """Version of NVIDIA's chart gpu-operator."""
    network_version: ChartVersion = "25.10.0"
    """Version of NVIDIA's chart network-operator."""
    amd_version: ChartVersion = "0.20.0"
    """Version of AMD's chart amd-gpu, its device plugin."""
