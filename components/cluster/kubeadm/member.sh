#!/bin/bash
# Makes this machine a member of a cluster, with kubeadm's configuration on standard input.
#
#   member.sh init|join ENDPOINT    host and port of the cluster's API
#
# A machine that is already a member stays unchanged. The script first resets a machine on which an
# earlier run was interrupted, and a worker of a cluster that no longer exists. It refuses a machine on
# which another tool has set up Kubernetes.
set -euo pipefail
umask 077
readonly step=$1 endpoint=$2
readonly state=/var/lib/slurmstack config=/run/slurmstack-kubeadm.yaml
# `mark` contains the cluster's endpoint and the hash of its CA. `begun` exists while kubeadm runs.
readonly mark=$state/member begun=$state/member-begun
readonly plane=/etc/kubernetes/manifests/kube-apiserver.yaml

fail() { echo "$(hostname): $*" >&2; exit 1; }
# Succeed if a Kubernetes API answers, even if it refuses anonymous requests. Fail if only a load balancer
# answers.
answers() {
    local output
    output=$(kubectl --kubeconfig /dev/null --server "https://$1" --insecure-skip-tls-verify \
        --request-timeout 5s get --raw /livez 2>&1 </dev/null) ||
        [[ $output == *Unauthorized* || $output == *Forbidden* ]]
}

trap 'rm -f "$config"' EXIT
cat >"$config"
cluster="$endpoint $(grep --only-matching 'sha256:[0-9a-f]*' "$config" || true)"

if [[ -e $mark && -e /etc/kubernetes/kubelet.conf ]]; then
    was=$(<"$mark")
    if [[ $was == "$cluster" ]] || [[ -e $plane && ${was%% *} == "$endpoint" ]]; then
        exit
    fi
    [[ ! -e $plane ]] ||
        fail "is a control plane of the cluster at ${was%% *}, not at $endpoint: a cluster's endpoint cannot change; revert the edit of cluster.endpoint or cluster.control_planes"
    touch "$begun"
fi
if [[ -e $begun ]]; then
    kubeadm reset --force >&2
    rm -f "$mark"
elif [[ -e /etc/kubernetes/kubelet.conf || -e $plane ]]; then
    fail "is already a member of another Kubernetes cluster: run 'kubeadm reset' on the machine, or use another machine"
fi
if [[ $step == init ]] && answers "$endpoint"; then
    fail "would create a new cluster, but a cluster already answers at $endpoint: put a machine of that cluster first in cluster.control_planes"
fi

mkdir -p "$state"
touch "$begun"
if [[ $step == init ]]; then
    kubeadm init --config "$config" --skip-token-print >&2
else
    kubeadm join --config "$config" >&2 ||
        fail "did not join; if its token is older than two hours, remove the machine from cluster.machines, deploy, put it back, and deploy again"
fi
echo "$cluster" >"$mark"
rm "$begun"
