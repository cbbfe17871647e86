#!/bin/bash
# Makes this machine a part of a cluster, by kubeadm's configuration on standard input.
#
#   member.sh init|join ENDPOINT    host and port of the cluster's API
#
# What is a part already is left as it is. What a run that was cut short has begun is undone first, and
# so is a worker's part in a cluster that is no more; a Kubernetes that somebody else made is left alone.
set -euo pipefail
umask 077
readonly how=$1 endpoint=$2
readonly state=/var/lib/slurmstack config=/run/slurmstack-kubeadm.yaml
# Names the cluster, by its API and its authority; beside it, while kubeadm is at work, stands another.
readonly mark=$state/member begun=$state/member-begun
readonly plane=/etc/kubernetes/manifests/kube-apiserver.yaml

fail() { echo "$(hostname): $*" >&2; exit 1; }
# Whether an API is there, even one that tells strangers nothing; a balancer without one is none.
answers() {
    local said
    said=$(kubectl --kubeconfig /dev/null --server "https://$1" --insecure-skip-tls-verify \
        --request-timeout 5s get --raw /livez 2>&1 </dev/null) ||
        [[ $said == *Unauthorized* || $said == *Forbidden* ]]
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
        fail "is a control plane of the cluster at ${was%% *}, not at $endpoint: a cluster's endpoint stays; take the edit of cluster.endpoint or cluster.control_planes back"
    touch "$begun"
fi
if [[ -e $begun ]]; then
    kubeadm reset --force >&2
    rm -f "$mark"
elif [[ -e /etc/kubernetes/kubelet.conf || -e $plane ]]; then
    fail "is in a Kubernetes cluster already, which is not this stack's: run 'kubeadm reset' there first, or take another machine"
fi
if [[ $how == init ]] && answers "$endpoint"; then
    fail "was to make a new cluster, and there is one at $endpoint: put a machine that is in it first in cluster.control_planes"
fi

mkdir -p "$state"
touch "$begun"
if [[ $how == init ]]; then
    kubeadm init --config "$config" --skip-token-print >&2
else
    kubeadm join --config "$config" >&2 ||
        fail "did not join; where its token is older than two hours, take it out of cluster.machines, deploy, and put it back"
fi
echo "$cluster" >"$mark"
rm "$begun"
