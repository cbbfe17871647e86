#!/bin/bash
# Runs on a control plane: prints the administrator's kubeconfig.
exec cat /etc/kubernetes/admin.conf
