#!/bin/bash
# Makes this machine no part of a cluster any more; what was installed on it stays.
set -euo pipefail
readonly state=/var/lib/slurmstack

if [[ -e $state/member || -e $state/member-begun ]]; then
    # An unfinished reset is gone over again: the marks go last.
    kubeadm reset --force >&2
    rm -rf /var/lib/etcd /etc/kubernetes
    rm -f "$state/member" "$state/member-begun"
fi
