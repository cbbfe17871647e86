#!/bin/bash
# Process 1 of a machine: prepares the container like a node of the local cluster, and runs sshd.
# shellcheck disable=SC2154  # the sourced script sets these variables
set -euo pipefail
# shellcheck source=/dev/null
. <(sed '/^trap /,$d' /usr/local/bin/entrypoint)

mkdir -p "$logs" /run/slurmstack /run/sshd /root/.ssh /home/admin/.ssh
prepare_cgroups
prepare_system
prepare_network
ssh-keygen -q -A
install -m 600 "$config/authorized_keys" /root/.ssh/authorized_keys
install -m 600 -o admin "$config/authorized_keys" /home/admin/.ssh/authorized_keys
chown admin /home/admin/.ssh
mkdir -p /etc/cni/net.d
cp "$config"/cni/* /etc/cni/net.d/
systemctl start containerd
/usr/sbin/sshd
say "runs"
trap 'exit 0' TERM
while :; do sleep infinity & wait $!; done
