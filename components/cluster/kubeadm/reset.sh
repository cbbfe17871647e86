#!/bin/bash
# Removes this machine from its cluster. Installed programs stay.
set -euo pipefail
readonly state=/var/lib/slurmstack

if [[ -e $state/member || -e $state/member-begun ]]; then
    # Remove the marks last, so that the next run repeats an unfinished reset.
    kubeadm reset --force >&2
    rm -rf /var/lib/etcd /etc/kubernetes
    rm -f "$state/member" "$state/member-begun"
fi
