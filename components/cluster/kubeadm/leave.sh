#!/bin/bash
# On a control plane: has a Node drained, and deletes it.
#
#   leave.sh NAME SECONDS       how long its pods may take to leave; what is left ends with it
set -euo pipefail
readonly name=$1 seconds=$2
export KUBECONFIG=/etc/kubernetes/admin.conf

[[ -n $(kubectl get node "$name" --ignore-not-found --output name) ]] || exit 0
kubectl drain "$name" --ignore-daemonsets --delete-emptydir-data --force \
    --timeout "${seconds}s" >&2 || echo "node $name: drain failed; deleting the node with its remaining pods" >&2
kubectl delete node "$name" --ignore-not-found >&2
