#!/bin/bash
# Process 1 of a node: prepares the container, then supervises the node's programs.
#
# It reads these files below /etc/slurmstack:
#   node.env           API_ADDRESS, API_PORT, POD_RANGE, RUNTIME
#   routes             routes to the pods of the other nodes, for `ip -batch`
#   cni/               configuration of the pod network
#   programs/early/    programs that need no other program; one file each, one argument per line
#   programs/late/     programs that require containerd and a listening Kubernetes API
#   programs/last/     programs that require a ready Kubernetes API
set -euo pipefail

readonly config=/etc/slurmstack
readonly logs=/var/log/slurmstack
readonly log_limit=$((16 * 1024 * 1024))
readonly open_files=65536

# shellcheck source=/dev/null
. "$config/node.env"

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*"; }

prepare_cgroups() {
    # Docker mounts cgroups read-only if the container is not privileged.
    local hierarchy
    for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*/; do
        if mountpoint --quiet "$hierarchy"; then
            mount -o remount,bind,rw "$hierarchy"
        fi
    done
    # In cgroup v2, a cgroup that contains processes cannot enable controllers for its children.
    if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
        mkdir -p /sys/fs/cgroup/node
        local pid
        while read -r pid; do
            echo "$pid" >/sys/fs/cgroup/node/cgroup.procs || true # the process may have ended
        done </sys/fs/cgroup/cgroup.procs
        sed 's/[^ ]\+/+&/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
    fi
}

prepare_system() {
    # kubelet requires the kernel's log and a machine id. Other pods must see volumes that one pod
    # mounts.
    [[ -e /dev/kmsg ]] || mknod /dev/kmsg c 1 11
    [[ -s /etc/machine-id ]] || tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
    mount --make-rshared /
    echo 1 >/proc/sys/net/ipv4/ip_forward
    # All nodes and pods share this limit on inotify instances. The default is 128.
    local instances=/proc/sys/fs/inotify/max_user_instances
    (($(<"$instances") >= 1024)) || echo 1024 >"$instances" || say "cannot raise $instances"
    # Pods inherit this limit. With a high limit, many programs start slowly, because they close
    # every possible file descriptor.
    [[ $(ulimit -Sn) != unlimited ]] && (($(ulimit -Sn) <= open_files)) || ulimit -Sn "$open_files"
}

prepare_network() {
    ip -batch "$config/routes"
    # Masquerade only connections to hosts outside the cluster: pods must see each other's
    # addresses.
    iptables -w -t nat -A POSTROUTING -s "$POD_RANGE" ! -d "$POD_RANGE" -j MASQUERADE
}

supervise() {
    local name=$1 log="$logs/$1.log" status
    shift
    while :; do
        if [[ -f $log ]] && (($(stat -c %s "$log") > log_limit)); then
            mv "$log" "$log.1"
        fi
        "$@" >>"$log" 2>&1 &
        echo $! >"/run/slurmstack/$name.pid"
        status=0
        wait $! || status=$?
        say "$name ended with exit code $status; restarting it"
        sleep 1
    done
}

supervise_all() {
    local file argv
    for file in "$config/programs/$1"/*; do
        [[ -f $file ]] || continue
        mapfile -t argv <"$file"
        supervise "$(basename "$file")" "${argv[@]}" &
    done
}

share_images() {
    # Use the images that were unpacked once for all nodes. Copy the metadata, because the node
    # changes it. Link the files, because the node only reads them. Images that a node later unpacks
    # or deletes therefore do not affect other nodes.
    local from=/srv/unpacked to=/var/lib/containerd new=/var/lib/containerd.new
    local snapshots=io.containerd.snapshotter.v1.overlayfs
    local blobs=io.containerd.content.v1.content/blobs/sha256
    [[ -e $from/complete && ! -e $to ]] || return 0
    rm -rf "$new"
    umask 077
    mkdir -p "$new/$snapshots/snapshots" "$new/$blobs"
    cp -a "$from/io.containerd.metadata.v1.bolt" "$new/"
    cp -a "$from/$snapshots/metadata.db" "$new/$snapshots/"
    ln -s "$from/$snapshots/snapshots"/* "$new/$snapshots/snapshots/"
    ln -s "$from/$blobs"/* "$new/$blobs/"
    mv "$new" "$to"
}

choose_runtime() {
    local file=/etc/containerd/config.toml line="default_runtime_name = \"$RUNTIME\""
    sed --in-place "s/default_runtime_name = .*/$line/" "$file"
    grep --quiet "$line" "$file" || { say "cannot set the runtime in $file"; exit 1; }
}

start_containerd() {
    supervise containerd containerd &
    until ctr version >/dev/null 2>&1; do sleep 0.1; done
    local image
    image=$(</usr/local/share/slurmstack/system.name)
    if ! ctr -n k8s.io images list -q | grep -qxF "$image"; then
        ctr -n k8s.io images import /usr/local/share/slurmstack/system.tar >/dev/null
    fi
}

stop() {
    local status=$1
    say "stopping"
    # The other programs end with this process. Stop etcd first, so that etcd can close its files.
    local pid_file=/run/slurmstack/etcd.pid tries
    if [[ -f $pid_file ]] && kill -TERM "$(<"$pid_file")" 2>/dev/null; then
        for ((tries = 0; tries < 50; tries++)); do
            kill -0 "$(<"$pid_file")" 2>/dev/null || break
            sleep 0.1
        done
    fi
    exit "$status"
}

trap 'stop 0' TERM INT
# To reboot a node, agents/reconciler/rebooter.py sends this signal to process 1, because
# systemd(1) reboots on it. Exit with a failure, so that Docker restarts the container.
trap 'stop 1' RTMIN+5
mkdir -p "$logs" /run/slurmstack
prepare_cgroups
prepare_system
prepare_network
supervise_all early
(share_images)
choose_runtime
start_containerd
until (: >"/dev/tcp/$API_ADDRESS/$API_PORT") 2>/dev/null; do sleep 0.2; done
supervise_all late
until kubectl --kubeconfig "$config/kube-proxy.kubeconfig" get --raw /readyz >/dev/null 2>&1; do
    sleep 0.2
done
supervise_all last
say "running"
while :; do wait || true; done
