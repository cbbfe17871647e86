#!/bin/bash
# Runs on a control plane: prints a new token with which one machine can join, in kubeadm's default group.
#
#   admit.sh NAME TTL worker|control-plane
#
# For another control plane, it also uploads the cluster's keys, encrypted; they stay for the same time.
# Standard input is then kubeadm's configuration with the key that encrypts them.
set -euo pipefail
umask 077
readonly name=$1 ttl=$2 as=$3 config=/run/slurmstack-admit-$1.yaml
export KUBECONFIG=/etc/kubernetes/admin.conf

if [[ $as == control-plane ]]; then
    trap 'rm -f "$config"' EXIT
    cat >"$config"
    kubeadm init phase upload-certs --upload-certs --skip-certificate-key-print \
        --config "$config" >&2
fi
kubeadm token create --ttl "$ttl" --description "$name joins"
