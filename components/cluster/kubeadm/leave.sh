#!/bin/bash
# Runs on a control plane: drains a Node, and deletes it. An eviction would wait until the last job
# has ended (agents/reconciler/disruption.py). A deletion gives jobs the nodeset's `drain_grace`.
#
#   leave.sh NAME SECONDS       time limit for pods to stop; the deletion of the Node ends the remaining pods
set -euo pipefail
readonly name=$1 seconds=$2
export KUBECONFIG=/etc/kubernetes/admin.conf

[[ -n $(kubectl get node "$name" --ignore-not-found --output name) ]] || exit 0
kubectl drain "$name" --ignore-daemonsets --delete-emptydir-data --force --disable-eviction \
    --timeout "${seconds}s" >&2 || echo "node $name: drain failed or timed out after ${seconds} seconds; deleting the node with its remaining pods" >&2
kubectl delete node "$name" --ignore-not-found >&2
