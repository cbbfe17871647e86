#!/bin/bash
# Unpacks the image of the cluster's own pods and an archive of other images, with a temporary
# containerd. New nodes start with the files that containerd creates in /var/lib/containerd.
set -euo pipefail

readonly root=/var/lib/containerd

exec 9>"$root/lock"
flock 9 # a run of another checkout may unpack the same images
[[ ! -e $root/complete ]] || exit 0
# Remove the files of an interrupted run.
find "$root" -mindepth 1 -maxdepth 1 ! -name lock -exec rm -rf {} +
containerd >/var/log/containerd.log 2>&1 9>&- &
until ctr version >/dev/null 2>&1; do
    kill -0 $! 2>/dev/null || { tail -n 1 /var/log/containerd.log && exit 1; }
    sleep 0.1
done
for archive in /usr/local/share/slurmstack/system.tar "$1"; do
    ctr --namespace k8s.io images import --local "$archive"
done
kill $!
wait || true
touch "$root/complete"
