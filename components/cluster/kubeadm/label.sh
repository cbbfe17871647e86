#!/bin/bash
# Runs on a control plane: gives a Node the labels and taints of its nodeset, and removes those of
# another nodeset.
#
#   label.sh NAME LABEL… -- TAINT…      key=value to set one, key- to remove one
set -euo pipefail
readonly name=$1
shift
export KUBECONFIG=/etc/kubernetes/admin.conf

# Wait: kubelet registers the Node some time after the machine has joined.
for ((tries = 0; ; tries++)); do
    [[ -z $(kubectl get node "$name" --ignore-not-found --output name) ]] || break
    ((tries < 60)) || { echo "node $name: not registered within a minute of joining; check 'journalctl -u kubelet' on the machine, then deploy again" >&2; exit 1; }
    sleep 1
done

while [[ $1 != -- ]]; do
    kubectl label node "$name" --overwrite "$1" >&2
    shift
done
shift
for taint; do
    if [[ $taint != *- ]]; then
        kubectl taint node "$name" --overwrite "$taint:NoSchedule" >&2
    elif [[ " $(kubectl get node "$name" --output 'jsonpath={.spec.taints[*].key}') " == *" ${taint%-} "* ]]; then
        kubectl taint node "$name" "$taint" >&2
    fi
done
