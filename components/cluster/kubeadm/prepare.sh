#!/bin/bash
# Prepares a machine for kubeadm: kernel, containerd, and Kubernetes' own packages, as Kubernetes'
# documentation requires ("Container Runtimes", "Installing kubeadm").
#
#   prepare.sh RELEASE off|keep     release of Kubernetes, such as 1.34.4; turn swap off, or keep it
#
# The script does not change existing installations. After an interruption, the next run finishes the work.
set -euo pipefail
readonly release=$1 swap=$2
readonly minor=${release%.*} state=/var/lib/slurmstack keys=/etc/apt/keyrings/kubernetes.asc

fail() { echo "$*" >&2; exit 1; }
has() { command -v "$@" >/dev/null; }
install_packages() {
    # Wait for apt's lock: on a machine that has just started, another apt may hold it.
    DEBIAN_FRONTEND=noninteractive apt-get --option DPkg::Lock::Timeout=300 install --yes \
        --no-install-recommends "$@" >&2
}

prepare_kernel() {
    grep -qw overlay /proc/filesystems || modprobe overlay
    [[ -d /proc/sys/net/bridge ]] || modprobe br_netfilter
    printf '%s\n' overlay br_netfilter >/etc/modules-load.d/slurmstack.conf
    local name
    for name in net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables; do
        echo "$name = 1"
    done >/etc/sysctl.d/99-slurmstack.conf
    for name in net/ipv4/ip_forward net/bridge/bridge-nf-call-iptables; do
        [[ $(<"/proc/sys/$name") == 1 ]] || echo 1 >"/proc/sys/$name"
    done
}

turn_swap_off() {
    sed --in-place --regexp-extended '/^[^#]\S*\s+\S+\s+swap\s/s/^/# /' /etc/fstab
    swapoff --all
}

install_containerd() {
    # Configure containerd only if this script installs it. containerd-begun exists until the configuration is done.
    if ! has containerd; then
        touch "$state/containerd-begun"
        apt-get update >&2
        install_packages containerd
    fi
    if [[ -e $state/containerd-begun ]]; then
        mkdir -p /etc/containerd
        containerd config default | sed 's/SystemdCgroup = false/SystemdCgroup = true/' \
            >/etc/containerd/config.toml
        systemctl restart containerd
        rm "$state/containerd-begun"
    fi
    systemctl enable --now containerd >&2
}

install_kubernetes() {
    if ! { has kubelet && has kubeadm && has kubectl; }; then
        [[ -d /etc/apt ]] || fail "$(hostname): has no apt: use a machine with Debian or Ubuntu, or install kubelet, kubeadm and kubectl $minor first"
        apt-get update >&2
        install_packages ca-certificates curl
        mkdir -p "${keys%/*}"
        curl --fail --silent --show-error --location --output "$keys" \
            "https://pkgs.k8s.io/core:/stable:/v$minor/deb/Release.key"
        echo "deb [signed-by=$keys] https://pkgs.k8s.io/core:/stable:/v$minor/deb/ /" \
            >/etc/apt/sources.list.d/kubernetes.list
        apt-get update >&2
        install_packages "kubelet=$release-*" "kubeadm=$release-*" "kubectl=$release-*"
        apt-mark hold kubelet kubeadm kubectl >&2
    fi
    local found
    found=$(kubeadm version --output short)
    [[ $found == "v$minor."* ]] ||
        fail "$(hostname): has kubeadm $found, expected v$minor: upgrade the machine, or set cluster.release to its version"
    systemctl enable kubelet >&2
}

mkdir -p "$state"
prepare_kernel
if [[ $swap == off ]]; then
    turn_swap_off
fi
install_containerd
install_kubernetes
