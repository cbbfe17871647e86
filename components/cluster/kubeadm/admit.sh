#!/bin/bash
# Runs on a control plane: prints a new token for one machine to join, in kubeadm's default group.
#
#   admit.sh NAME TTL worker|control-plane
#
# For a new control plane, it also uploads the cluster's keys, encrypted; kubeadm keeps them as long as the token.
# Standard input must then be kubeadm's configuration, with the key for the encryption.
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
