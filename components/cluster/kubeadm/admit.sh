#!/bin/bash
# Runs on a control plane: prints a new token with which one machine can join, in kubeadm's default group.
#
#   admit.sh NAME TTL worker|control-plane
#
# For a new control plane, the script also uploads the cluster's keys in encrypted form. kubeadm keeps them as long as
# the token. In this case, standard input must be kubeadm's configuration, which contains the encryption key.
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
