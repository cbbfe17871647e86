"""Types of the arguments of `SlurmCluster`, which `make schema` writes from the settings."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from pulumi import Input


class Account(TypedDict):
    """An account: a group of users who share its limits."""

    priority: NotRequired[Input[int]]
    """Priority. Its weight is slurm.priority.association, or slurm.priority.qos for a QOS."""
    min_prio_thresh: NotRequired[Input[int]]
    """Minimum priority that a job must have so that slurmctld reserves resources for it."""
    grp_jobs: NotRequired[Input[int]]
    """Limit of running jobs."""
    grp_jobs_accrue: NotRequired[Input[int]]
    """Limit of pending jobs whose priority grows with their age."""
    grp_submit_jobs: NotRequired[Input[int]]
    """Limit of pending and running jobs."""
    grp_tres: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the resources of all running jobs, such as `{cpu: 100, mem: 1TiB, gres/gpu: 8}`."""
    grp_tres_mins: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the usage of past and running jobs, in minutes of each resource."""
    grp_tres_run_mins: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the usage that running jobs can still reach until their time limits, in minutes of
    each resource."""
    grp_wall: NotRequired[Input[str]]
    """Limit of the total run time of past and running jobs."""
    max_tres_per_job: NotRequired[Input[Mapping[str, Input[Any]]]]
    max_tres_per_node: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of a job's resources on one node."""
    max_tres_mins_per_job: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of a job's usage until its time limit, in minutes of each resource."""
    max_wall: NotRequired[Input[str]]
    """Longest time limit of a job."""
    fairshare: NotRequired[Input[int | str]]
    """Share relative to sibling associations; by default 1, as in Slurm. `parent`: fair-share uses
    the parent association."""
    max_jobs: NotRequired[Input[int]]
    """Limit of each user's running jobs."""
    max_jobs_accrue: NotRequired[Input[int]]
    """Limit of each user's pending jobs whose priority grows with their age."""
    max_submit_jobs: NotRequired[Input[int]]
    """Limit of each user's pending and running jobs."""
    qos: NotRequired[Input[Sequence[Input[str]]]]
    """QOS that jobs may request; by default those of the parent account. The root account has
    `normal`."""
    default_qos: NotRequired[Input[str]]
    """QOS of jobs that do not request one."""
    name: Input[str]
    parent: NotRequired[Input[str]]
    description: NotRequired[Input[str]]
    organization: NotRequired[Input[str]]
    users: NotRequired[Input[Sequence[Input["AccountUser"]]]]


class AccountUser(TypedDict):
    """A user in an account."""

    priority: NotRequired[Input[int]]
    """Priority. Its weight is slurm.priority.association, or slurm.priority.qos for a QOS."""
    min_prio_thresh: NotRequired[Input[int]]
    """Minimum priority that a job must have so that slurmctld reserves resources for it."""
    grp_jobs: NotRequired[Input[int]]
    """Limit of running jobs."""
    grp_jobs_accrue: NotRequired[Input[int]]
    """Limit of pending jobs whose priority grows with their age."""
    grp_submit_jobs: NotRequired[Input[int]]
    """Limit of pending and running jobs."""
    grp_tres: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the resources of all running jobs, such as `{cpu: 100, mem: 1TiB, gres/gpu: 8}`."""
    grp_tres_mins: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the usage of past and running jobs, in minutes of each resource."""
    grp_tres_run_mins: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the usage that running jobs can still reach until their time limits, in minutes of
    each resource."""
    grp_wall: NotRequired[Input[str]]
    """Limit of the total run time of past and running jobs."""
    max_tres_per_job: NotRequired[Input[Mapping[str, Input[Any]]]]
    max_tres_per_node: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of a job's resources on one node."""
    max_tres_mins_per_job: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of a job's usage until its time limit, in minutes of each resource."""
    max_wall: NotRequired[Input[str]]
    """Longest time limit of a job."""
    fairshare: NotRequired[Input[int | str]]
    """Share relative to sibling associations; by default 1, as in Slurm. `parent`: fair-share uses
    the parent association."""
    max_jobs: NotRequired[Input[int]]
    """Limit of each user's running jobs."""
    max_jobs_accrue: NotRequired[Input[int]]
    """Limit of each user's pending jobs whose priority grows with their age."""
    max_submit_jobs: NotRequired[Input[int]]
    """Limit of each user's pending and running jobs."""
    qos: NotRequired[Input[Sequence[Input[str]]]]
    """QOS that jobs may request; by default those of the parent account. The root account has
    `normal`."""
    default_qos: NotRequired[Input[str]]
    """QOS of jobs that do not request one."""
    name: Input[str]
    partitions: NotRequired[Input[Sequence[Input["UserPartition"]]]]
    """Limits of the user's jobs in single partitions."""
    default: NotRequired[Input[bool]]
    """Make this the default account of the user's jobs. Without a default, Slurm uses the first
    account."""


class Accounting(TypedDict):
    """slurmdbd and its database, for `sacct`, accounts, limits and fair-share."""

    enabled: NotRequired[Input[bool]]
    database: NotRequired[Input["BundledDatabase"]]
    external: NotRequired[Input["ExternalDatabase"]]
    """An existing database, instead of the stack's own."""
    gather_interval: NotRequired[Input[int]]
    """Seconds between two samples of a task's resource usage; 0: only one sample, when the task
    ends."""
    energy: NotRequired[Input[str]]
    """Source of energy measurements on the nodes."""
    store_scripts: NotRequired[Input[bool]]
    """Keep job scripts, for `sacct --batch-script`."""
    store_environments: NotRequired[Input[bool]]
    """Keep the environments of submitted jobs, for `sacct --env-vars`."""
    purge: NotRequired[Input["Purge"]]
    archive: NotRequired[Input["Archive"]]
    """Volume for records that `purge` removes; without it, these records are lost."""
    enforce: NotRequired[Input[Sequence[Input[str]]]]
    """Rules that Slurm enforces by refusing or holding jobs. With `directory`, the default is no
    rules: directory-only users have no association, so they could not submit jobs."""
    accounts: NotRequired[Input[Sequence[Input["Account"]]]]
    default_account: NotRequired[Input[str]]
    """Account of users who are in no account of `accounts`. The deploy creates it if needed."""
    qos: NotRequired[Input[Sequence[Input["Qos"]]]]
    """Qualities of service."""
    operators: NotRequired[Input[Sequence[Input[str]]]]
    """Users with AdminLevel Operator: they can see everything and change accounts, but they cannot
    change AdminLevels."""
    administrators: NotRequired[Input[Sequence[Input[str]]]]
    """Users with AdminLevel Administrator: they have root's rights in Slurm."""
    remove_with_jobs: NotRequired[Input[Sequence[Input[str]]]]
    """Objects to remove even if jobs use them, such as 'user ada account physics'. The deploy
    cancels these jobs."""
    backup: NotRequired[Input["Dumps"]]


class Archive(TypedDict):
    """A volume for records that `purge` removes; `sacctmgr archive load` restores them."""

    size: NotRequired[Input[str]]
    storage_class: NotRequired[Input[str]]
    """StorageClass of the volume; by default the cluster's default."""


class Auth(TypedDict):
    """Authentication between daemons and clients."""

    type: NotRequired[Input[str]]
    """munge: a munged in every pod; slurm: Slurm's own plugin. Choose before the first deploy."""
    rotations: NotRequired[Input[Sequence[Input[str]]]]
    """Times at which a new key takes effect, such as '2026-12-01T03:00:00Z', oldest first. Add a
    time at least three minutes in advance, so that every pod has the key by then. You may remove
    past times, except the latest one."""


class Backup(TypedDict):
    """Sets of backups: the queue, the accounting database, the jail and the jail's volumes."""

    keep: NotRequired[Input["Keep"]]
    size: NotRequired[Input[str]]
    """Size of the stack's own volume for backups."""
    storage_class: NotRequired[Input[str]]
    """StorageClass of the volume for backups; by default the cluster's default."""
    claim: NotRequired[Input[str]]
    """Name of an existing PersistentVolumeClaim, instead of the stack's own volume."""
    nfs: NotRequired[Input["Nfs"]]
    """Folder that an NFS server exports, instead of the stack's own volume."""
    s3: NotRequired[Input["S3"]]
    """A bucket, instead of a volume."""
    schedule: NotRequired[Input[str]]
    """Cron schedule (minute, hour, day of the month, month, day of the week), in UTC."""
    password_secret: Input[str]
    """Secret in the stack's namespace; its entry `password` encrypts the backups."""
    exclude: NotRequired[Input[Sequence[Input[str]]]]
    """Patterns of restic for files to leave out, such as '*.core'. A pattern with a leading slash
    is a path in the jail and in each of its volumes. With '/*' at its end, the folder stays."""
    largest_file: NotRequired[Input[str]]
    """Size of the largest file. Larger ones are left out: restic also reads the holes of sparse
    files, so one such file could stop all backups."""
    upload: NotRequired[Input[int]]
    """Limit in KiB/s for uploads to the store; by default no limit."""
    cpus: NotRequired[Input[float]]
    """Limit of CPUs for a backup."""
    memory: NotRequired[Input[str]]
    """Limit of memory for a backup."""
    restore: NotRequired[Input[str]]
    """Set to restore: 'latest', or a set's id. Each part is restored before its daemon starts, and
    only if its volume is empty. Meanwhile, the stack takes no backups."""


class Block(TypedDict):
    """A group of nodes with a fast network."""

    name: Input[str]
    nodes: NotRequired[Input[str]]
    """Nodes in the block, such as 'gpu-[0-7]'."""
    nodesets: NotRequired[Input[Sequence[Input[str]]]]
    """Nodesets whose nodes are all in the block."""


class Bridge(TypedDict):
    """Lets Slurm decide where and when pods run."""

    scheduler: NotRequired[Input[str]]
    """Pods with this `schedulerName` are scheduled by Slurm."""
    namespaces: NotRequired[Input[Sequence[Input[str]]]]
    """Namespaces of which Slurm schedules all pods, whatever their `schedulerName` is."""
    default_memory: NotRequired[Input[str]]
    """MiB of memory of each container that has neither a request nor a limit."""
    partition: NotRequired[Input[str]]
    """Partition of pods whose annotations name none; by default 'pods', if a nodeset has
    'pods_only', or else Slurm's default partition."""
    users: Input[Sequence[Input["PodUser"]]]
    """Which pods act as which users. All other pods with `scheduler` are refused."""
    replicas: NotRequired[Input[int]]
    """Number of pods of the bridge. One acts, and the others wait to take its place."""


class Bundled(TypedDict):
    """The stack's own Prometheus and Alertmanager."""

    retention: NotRequired[Input[int]]
    """Days to keep metrics, if the volume has space."""
    size: NotRequired[Input[str]]
    """Size of the volume for Prometheus and Alertmanager."""
    storage_class: NotRequired[Input[str]]
    """StorageClass of the volume; by default the cluster's default."""
    webhook: NotRequired[Input[str]]
    """URL that Alertmanager posts alerts to, in Alertmanager's own format. Encrypt it if it
    contains a token. Its host and port are readable in the network policies."""
    alertmanager_secret: NotRequired[Input[str]]
    """Secret in the stack's namespace. Its entry `alertmanager.yml` replaces the stack's own
    configuration of Alertmanager, for mail, chats and on-call services."""
    grafana: NotRequired[Input["Grafana"]]


class BundledDatabase(TypedDict):
    """The stack's own MariaDB."""

    size: NotRequired[Input[str]]
    """Size of the database's volume."""
    storage_class: NotRequired[Input[str]]
    """StorageClass of the database's volume; by default the cluster's default."""
    buffer_pool: NotRequired[Input[str]]
    """Memory for cached tables; Slurm's manual recommends at least 4 GiB."""


class Cilium(TypedDict):
    """Cilium as a Helm release of its official chart, in `kube-system`."""

    version: NotRequired[Input[str]]
    """Version of the chart, which is also Cilium's version."""
    chained: NotRequired[Input[str]]
    """Name of the cloud's own network plugin (its CNI network), such as `aws-cni`, if Cilium runs
    on top of this plugin. The plugin then assigns addresses and routes, and Cilium enforces
    policies. By default, Cilium does everything."""
    pod_cidr: NotRequired[Input[str]]
    """Address range of pods. By default, Cilium uses the range that Kubernetes assigns to each
    node, for example with kubeadm."""
    routing: NotRequired[Input[str]]
    """tunnel: VXLAN between nodes; native: the underlying network routes to pods."""
    native_cidr: NotRequired[Input[str]]
    """For native routing: address range that the underlying network routes. Destinations in this
    range see a pod's own address."""
    node_routes: NotRequired[Input[bool]]
    """For native routing, if all nodes are in one layer-2 network: each node adds routes to the
    pods of the other nodes."""
    mtu: NotRequired[Input[int]]
    """MTU of the underlying network in bytes; by default the MTU of its devices."""
    devices: NotRequired[Input[Sequence[Input[str]]]]
    """Network interfaces for pods' traffic, such as `eth0` or `bond+`; by default those with a
    default route or the node's address. Set this key on machines with InfiniBand or RoCE, so that
    Cilium does not use the interfaces of the fast network."""
    kube_proxy_replacement: NotRequired[Input[bool]]
    """Let Cilium resolve Services, without kube-proxy."""
    api_host: NotRequired[Input[str]]
    """Host name or address at which Cilium reaches the Kubernetes API, instead of the Service of
    the API. Required with kube_proxy_replacement."""
    api_port: NotRequired[Input[int]]
    """Port of the API at `api_host`."""
    bandwidth_manager: NotRequired[Input[bool]]
    """Pace the traffic that pods send, and enforce `kubernetes.io/egress-bandwidth`."""
    bbr: NotRequired[Input[bool]]
    """Use BBR for pods' TCP connections, which helps distant clients; requires `bandwidth_manager`,
    `kube_proxy_replacement` and Linux 5.18."""
    encryption: NotRequired[Input[str]]
    """Encryption between pods on different nodes."""
    ipsec_secret: NotRequired[Input[str]]
    """Secret in `kube-system` with the IPsec key in its entry `keys`; Cilium's documentation
    describes the format."""
    host_firewall: NotRequired[Input[bool]]
    """Apply CiliumClusterwideNetworkPolicies to the machines too."""
    hubble: NotRequired[Input["Hubble"]]


class Containers(TypedDict):
    """Jobs in container images (`srun --container-image`). With options of `srun`, users can
    override the settings that say 'by default'."""

    enabled: NotRequired[Input[bool]]
    """Offer `--container-image` and its related options."""
    cache: NotRequired[Input[str]]
    """Path of each user's cache: in the home directory (~), which all nodes share, or on a node's
    disk, with %u for the user's name."""
    site_cache: NotRequired[Input[str]]
    """Directory in the jail with image layers for all users. The site creates a user who owns the
    directory and adds layers with `slurm-image share`."""
    cache_size: NotRequired[Input[str]]
    """Size limit of a user's cache. The least recently used images are removed first."""
    image_size: NotRequired[Input[str]]
    """Size limit of an image's files."""
    fresh_for: NotRequired[Input[int]]
    """Seconds until a job looks up an image's tag in the registry again."""
    allowed: NotRequired[Input[Sequence[Input[str]]]]
    """Patterns of permitted registry images, such as 'nvcr.io/nvidia/*'; by default all. Images in
    files are always permitted."""
    registries: NotRequired[Input[Sequence[Input["ImageRegistry"]]]]
    credentials_secret: NotRequired[Input[str]]
    """Secret of type kubernetes.io/dockerconfigjson with credentials of registries, for users who
    have no credentials of their own. All users can read this Secret."""
    mounts: NotRequired[Input[Sequence[Input[str]]]]
    """Mounts in every container, in the syntax of `--container-mounts`."""
    environment: NotRequired[Input[Mapping[str, Input[str]]]]
    """Environment variables in every container; the image's own variables take precedence."""
    mount_home: NotRequired[Input[bool]]
    """By default, mount the home directory in the container."""
    remap_root: NotRequired[Input[bool]]
    """By default, run as root in the container."""
    entrypoint: NotRequired[Input[bool]]
    """By default, run the image's entrypoint."""
    writable: NotRequired[Input[bool]]
    """By default, let a container write to its own files."""


class Controller(TypedDict):
    """slurmctld and its state."""

    state_size: NotRequired[Input[str]]
    """Size of the volume for the queue and the state of nodes."""
    storage_class: NotRequired[Input[str]]
    """StorageClass of the controller's volume; by default the cluster's default."""
    standby: NotRequired[Input[bool]]
    """Run a standby controller on another Kubernetes node. The standby takes over within seconds if
    the first controller does not respond. The StorageClass must support ReadWriteMany. Choose
    before the first deploy."""


class Csi(TypedDict):
    """An existing volume of a CSI driver."""

    driver: Input[str]
    """Name of the CSI driver, such as 'csi.example.org'."""
    handle: Input[str]
    """Id of the volume in the driver (volumeHandle)."""
    attributes: NotRequired[Input[Mapping[str, Input[str]]]]
    """Further attributes for the driver."""
    options: NotRequired[Input[Sequence[Input[str]]]]
    node_stage_secret: NotRequired[Input[str]]
    """Secret in the stack's namespace that the driver uses to mount the volume on a Kubernetes
    node."""
    node_publish_secret: NotRequired[Input[str]]
    """Secret in the stack's namespace that the driver uses to mount the volume for a pod."""


class Directory(TypedDict):
    """An LDAP directory with users in addition to `users`."""

    uris: Input[Sequence[Input[str]]]
    """Servers, such as 'ldaps://ldap.example.org', in the order in which they are tried. With
    'ldap://', StartTLS encrypts the connection."""
    base: Input[str]
    """Search base of users and groups, such as 'dc=example,dc=org'."""
    bind_dn: NotRequired[Input[str]]
    """Bind DN, such as 'cn=reader,dc=example,dc=org'; by default an anonymous bind."""
    password_secret: NotRequired[Input[str]]
    """Secret in the stack's namespace; its entry `password` is the password of bind_dn."""
    ca: NotRequired[Input[str]]
    """File with CA certificates (PEM) to verify the servers: a path relative to the project, read
    at deploy time. The default is Debian's CA certificates."""
    kind: NotRequired[Input[str]]
    """Schema of the directory. rfc2307: group members are user names; rfc2307bis: group members are
    entries; ad: Active Directory."""
    user_filter: NotRequired[Input[str]]
    """LDAP filter for users, such as '(memberOf=cn=hpc,dc=example,dc=org)'; by default all."""
    key_attribute: NotRequired[Input[str]]
    """Attribute, in a user's entry, that contains the user's public SSH keys."""


class Dumps(TypedDict):
    """Dumps of the database, on a volume or in a bucket."""

    keep: NotRequired[Input["Keep"]]
    size: NotRequired[Input[str]]
    """Size of the stack's own volume for backups."""
    storage_class: NotRequired[Input[str]]
    """StorageClass of the volume for backups; by default the cluster's default."""
    claim: NotRequired[Input[str]]
    """Name of an existing PersistentVolumeClaim, instead of the stack's own volume."""
    nfs: NotRequired[Input["Nfs"]]
    """Folder that an NFS server exports, instead of the stack's own volume."""
    s3: NotRequired[Input["S3"]]
    """A bucket, instead of a volume."""
    enabled: NotRequired[Input[bool]]
    schedule: NotRequired[Input[str]]
    """Cron schedule (minute, hour, day of the month, month, day of the week), in UTC."""
    password_secret: NotRequired[Input[str]]
    """Secret in the stack's namespace; its entry `password` encrypts the dumps. Without a Secret,
    anyone with access to the store can read the dumps."""
    restore: NotRequired[Input[str]]
    """Dump to restore: 'latest', or a dump's name. The dump is loaded before slurmdbd starts, and
    only if the database has no tables."""


class Empty(TypedDict):
    """Space that is deleted with the pod."""

    size: NotRequired[Input[str]]
    """Size limit, such as '10GiB'; by default all of the machine's space."""
    medium: NotRequired[Input[str]]
    """memory: files use the pod's memory."""


class Exporter(TypedDict):
    """The exporter, which offers Slurm's state as metrics for Prometheus."""

    enabled: NotRequired[Input[bool]]
    interval: NotRequired[Input[int]]
    """Seconds between two reads of Slurm's state, independent of Prometheus's scrape interval."""
    top: NotRequired[Input[int]]
    """Maximum number of accounts, and of users, that have their own series. The accounts and users
    whose running and pending jobs have the most CPUs come first. The exporter adds up the rest."""
    jobs: NotRequired[Input[int]]
    """Limit of exported pairs of a running job and one of its nodes. Jobs with the most CPUs are
    exported first. A job is exported with all of its nodes or not at all."""


class ExternalDatabase(TypedDict):
    """An existing MariaDB or MySQL."""

    host: Input[str]
    """Host name or address of the database server."""
    port: NotRequired[Input[int]]
    name: NotRequired[Input[str]]
    """Name of the database; created if it is missing and `user` may create databases."""
    user: NotRequired[Input[str]]
    password_secret: Input[str]
    """Secret in the stack's namespace; its entry `password` is the password of `user`."""
    tls_ca: NotRequired[Input[str]]
    """File with CA certificates (PEM) to verify the server: a path relative to the project, read at
    deploy time. Without this file, the connection is encrypted only if the server supports it."""


class Forwarding(TypedDict):
    """SSH forwarding, in addition to terminals and file transfers."""

    tcp: NotRequired[Input[bool]]
    """Forward ports and sockets: `ssh -L`, `-R`, `-D` and `-J`."""
    agent: NotRequired[Input[bool]]
    """Forward the user's SSH agent: `ssh -A`."""
    x11: NotRequired[Input[bool]]
    """Forward graphical windows: `ssh -X`."""


class Gpus(TypedDict):
    """GPUs of a node, which Slurm allocates as gres."""

    type: Input[str]
    """GPU type for `--gres=gpu:<type>:1`, such as 'h100'."""
    count: Input[int]
    """Number of GPUs of a node."""
    resource: NotRequired[Input[str]]
    """Name of the GPU's resource in Kubernetes."""
    shards: NotRequired[Input[int]]
    """Number of shards of each GPU, for `--gres=shard:1`."""
    mig: NotRequired[Input[Mapping[str, Input[int]]]]
    """Number of a node's slices for each MIG profile, such as `1g.10gb: 7`. Jobs then get slices
    instead of whole GPUs."""


class Grafana(TypedDict):
    """The stack's own Grafana, with the data source and the dashboards."""

    enabled: NotRequired[Input[bool]]
    image: NotRequired[Input[str]]
    """Grafana's official image, or a copy in another registry."""


class Group(TypedDict):
    """A group of users, in addition to each user's private group."""

    name: Input[str]
    gid: Input[int]
    """Group id. It must differ from every uid: the uid is also the id of a user's private group."""
    members: NotRequired[Input[Sequence[Input[str]]]]
    """Names of users."""


class Health(TypedDict):
    """Checks that every node runs on itself; docs/health.md explains each."""

    enabled: NotRequired[Input[bool]]
    """Run the checks, which drain nodes that are unfit for jobs."""
    interval: NotRequired[Input[int]]
    """Seconds between two rounds of checks."""
    node_states: NotRequired[Input[Sequence[Input[str]]]]
    """States in which a node runs checks; one of them must be any or idle. cycle: the nodes run
    checks at different times."""
    checks: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Effect and limits of each check on all nodes, such as `disk: {max_percent: 90}`; false
    disables a check."""
    script: NotRequired[Input["Script"]]
    """Script that runs as root on every node: after the checks, or alone if they are disabled. The
    script may drain its node."""


class Hours(TypedDict):
    """Hours in which more nodes must be awake."""

    days: NotRequired[Input[Sequence[Input[str]]]]
    """Days on which the hours begin; by default all."""
    begin: Input[str]
    """Begin in UTC, such as '08:00'."""
    end: Input[str]
    """End in UTC. If `end` is not after `begin`, the hours end on the next day."""
    min: Input[int]
    """Number of nodes that are awake."""


class Hubble(TypedDict):
    """Cilium's records of connections, including refused ones."""

    enabled: NotRequired[Input[bool]]
    """Keep records of each node's latest connections (flows), for `hubble observe`."""
    relay: NotRequired[Input[bool]]
    """Run a service through which `hubble observe` queries all nodes."""
    ui: NotRequired[Input[bool]]
    """Run Hubble's web page (map of flows) for `kubectl port-forward`; requires `relay`."""


class ImageRegistry(TypedDict):
    """A registry that has mirrors, or no TLS."""

    name: Input[str]
    """Host of the registry, with an optional port and path prefix."""
    mirrors: NotRequired[Input[Sequence[Input[str]]]]
    """Mirrors and pull-through caches, in the order in which they are tried."""
    insecure: NotRequired[Input[bool]]
    """Allow HTTP and unverified certificates."""


class InitContainer(TypedDict):
    """A container that runs once in a pod, before slurmd and slurmd's sidecars."""

    name: Input[str]
    """Name of the container; unique in the pod."""
    image: Input[str]
    command: Input[Sequence[Input[str]]]
    """Program with arguments."""
    environment: NotRequired[Input[Mapping[str, Input[str]]]]
    user: NotRequired[Input[int]]
    """Uid that the container runs as; the default is unprivileged."""
    capabilities: NotRequired[Input[Sequence[Input[str]]]]
    """Capabilities of the container, such as `SYS_ADMIN`; by default none."""


class Isolation(TypedDict):
    """How the SPANK plugin isolates a nodeset's jobs; see slurmstack-chroot(8).

    A job always has its own /tmp, /var/tmp and /dev/shm, which are deleted after the job. A job
    sees only its own processes."""

    no_new_privileges: NotRequired[Input[bool]]
    """In jobs, set-user-ID programs such as sudo, su and newgrp gain no privileges, and root has
    few capabilities."""
    private_devices: NotRequired[Input[bool]]
    """In jobs, /dev has only the standard devices, the node's GPUs and its network devices."""
    devices: NotRequired[Input[Sequence[Input[str]]]]
    """Further devices in the node's /dev that jobs see, such as 'vfio' or 'tty*'."""
    tmp: NotRequired[Input[str]]
    """Size of a job's /tmp in memory, such as '8GiB'; by default /tmp is on the node's disk."""
    var_tmp: NotRequired[Input[str]]
    """Size of a job's /var/tmp in memory; by default /var/tmp is on the node's disk."""
    shm: NotRequired[Input[str]]
    """Size of a job's /dev/shm; by default half the node's memory, for all jobs together."""
    processes: NotRequired[Input[int]]
    """Limit of a job's processes and threads on a node, if the node can limit them. The effective
    limit is at most an eighth of the machine's kernel.pid_max, which is at most 4,194,304."""
    steps: NotRequired[Input[int]]
    """Limit of a job's steps on a node, including the batch step and the extern step. By default
    one step per 4 MiB that the node reserves for daemons, at most 256. Each step has a slurmstepd,
    which uses this reserve, not the job's memory."""
    overlay: NotRequired[Input[bool]]
    """Keep a job's writes to the shared root private, and delete them after the job."""
    shared: NotRequired[Input[Sequence[Input[str]]]]
    """Folders of the shared root that jobs still share when `overlay` is true."""


class Jail(TypedDict):
    """The shared root file system of login nodes and workers."""

    size: NotRequired[Input[str]]
    """Size of the volume, such as '100GiB'."""
    storage_class: NotRequired[Input[str]]
    """StorageClass that supports ReadWriteMany; by default the cluster's default."""
    nfs: NotRequired[Input["NfsExport"]]
    """Folder that an NFS server exports, instead of a StorageClass. The server must let root own
    files in this folder (no_root_squash)."""
    csi: NotRequired[Input["Csi"]]
    """Existing volume of a CSI driver, instead of a StorageClass."""
    host_path: NotRequired[Input[str]]
    """Folder that all Kubernetes nodes share, instead of a StorageClass."""
    claim: NotRequired[Input[str]]
    """Name of an existing PersistentVolumeClaim with ReadWriteMany, instead of a StorageClass."""
    server: NotRequired[Input["NfsServer"]]
    """The stack's own NFS server, instead of a StorageClass; `size` is the size of its volume."""
    refresh: NotRequired[Input[int]]
    """Generation of the system files. Raise it by one to unpack the jail image again. Lower it by
    one to restore the previous system files. Users' files do not change."""
    volumes: NotRequired[Input[Sequence[Input["Submount"]]]]
    """Further volumes in the jail, on all nodes."""


class Keep(TypedDict):
    """Rules about which backups to keep. One backup can satisfy several rules."""

    last: NotRequired[Input[int]]
    """Number of newest backups to keep."""
    daily: NotRequired[Input[int]]
    """Number of days; the last backup of each day is kept."""
    weekly: NotRequired[Input[int]]
    """Number of weeks; the last backup of each week is kept."""
    monthly: NotRequired[Input[int]]
    """Number of months; the last backup of each month is kept."""


class Limits(TypedDict):
    """Limits of each user on each login node, for all of the user's processes together."""

    cpus: NotRequired[Input[float]]
    """CPUs; by default all CPUs that other users do not use."""
    memory: NotRequired[Input[str]]
    """Memory, such as '16GiB'; by default all of the node's memory."""
    processes: NotRequired[Input[int]]
    """Processes and threads, including two of sshd for each session; by default the pod's limit."""


class Login(TypedDict):
    """Login nodes `login-0`, `login-1`, …, which users reach by SSH."""

    replicas: NotRequired[Input[int]]
    """Number of login nodes; all have the same host key."""
    service: NotRequired[Input[str]]
    node_port: NotRequired[Input[int]]
    """Port on every Kubernetes node, with `service: NodePort`."""
    source_ranges: NotRequired[Input[Sequence[Input[str]]]]
    """Networks that clients may connect from, with `service: LoadBalancer`; by default all."""
    home_keys: NotRequired[Input[bool]]
    """Accept keys in users' own ~/.ssh/authorized_keys, in addition to those of `users`."""
    ssh_to_nodes: NotRequired[Input[bool]]
    """Let `ssh <node>` enter the user's job on that node."""
    drain_grace: NotRequired[Input[int]]
    """Seconds that sessions may continue on a login node that is being removed."""
    forwarding: NotRequired[Input["Forwarding"]]
    limits: NotRequired[Input["Limits"]]
    motd: NotRequired[Input["Motd"]]


class Logs(TypedDict):
    """Receiver of the daemons' log lines. The stack uses the OpenTelemetry protocol over HTTP."""

    endpoint: Input[str]
    """URL of the receiver without `/v1/logs`: an OpenTelemetry collector, such as
    `http://collector.monitoring:4318`, or Loki 3, such as `https://loki.example.org/otlp`."""
    headers_secret: NotRequired[Input[str]]
    """Secret in the stack's namespace; its entries are HTTP headers of the requests, such as
    `Authorization` or `X-Scope-OrgID`."""
    ca: NotRequired[Input[str]]
    """File with CA certificates (PEM) to verify the receiver: a path relative to the project, read
    at deploy time. The default is Debian's CA certificates."""
    level: NotRequired[Input[str]]
    """Lowest level to send."""


class LongCheck(TypedDict):
    """One long check."""

    name: Input[str]
    enabled: NotRequired[Input[bool]]
    """Run the check on its schedule; false: run it only on demand."""
    schedule: NotRequired[Input[str]]
    """Cron schedule (minute, hour, day of the month, month, day of the week), in UTC."""
    nodesets: NotRequired[Input[Sequence[Input[str]]]]
    """Nodesets to measure; by default all with enough GPUs for the check."""
    threshold: NotRequired[Input[float]]
    """Lowest good value, in the check's unit; for `dcgm` and `gpu-burn`, the highest good value. By
    default, the known threshold for this type of GPU."""
    fall: NotRequired[Input[float]]
    """Fraction by which a value may be worse than the node's usual value."""
    history: NotRequired[Input[int]]
    """Number of a node's newest values; their median is its usual value."""
    least: NotRequired[Input[int]]
    """Minimum number of values before a node is compared with its usual value."""


class LongChecks(TypedDict):
    """Long checks, their limits, and the volume for their measurements."""

    checks: NotRequired[Input[Sequence[Input["LongCheck"]]]]
    at_once: NotRequired[Input[int]]
    """Limit of nodes, or of node pairs, that a check measures at the same time."""
    wait: NotRequired[Input[int]]
    """Seconds that a run waits for one of its remaining nodes to become free."""
    keep: NotRequired[Input[int]]
    """Number of measurements to keep for each check and node."""
    size: NotRequired[Input[str]]
    """Size of the volume for measurements."""
    storage_class: NotRequired[Input[str]]
    """StorageClass of the volume; by default the cluster's default."""


class Lua(TypedDict):
    """A Lua script with the functions that slurmctld calls: its text, or a file in the project."""

    text: NotRequired[Input[str]]
    file: NotRequired[Input[str]]
    """Path of the script, relative to the project; read at deploy time."""


class Monitoring(TypedDict):
    """Metrics, alerts and logs."""

    kind: NotRequired[Input[str]]
    """Collector of metrics. bundled: the stack's own Prometheus; operator: an existing
    Prometheus Operator; none: the stack configures no collector."""
    bundled: NotRequired[Input["Bundled"]]
    operator: NotRequired[Input["Operator"]]
    dcgm_namespace: NotRequired[Input[str]]
    """With kind: bundled, the namespace in which NVIDIA's GPU operator runs DCGM exporter, for
    metrics of GPUs. By default the namespace of the GPU operator that the stack installs."""
    scrape_from: NotRequired[Input[Sequence[Input[str]]]]
    """Kubernetes namespaces whose pods may scrape the stack's metrics."""
    exporter: NotRequired[Input["Exporter"]]
    logs: NotRequired[Input["Logs"]]
    """Receiver of the daemons' log lines; by default nothing is sent."""


class Motd(TypedDict):
    """Message at login on a terminal (message of the day)."""

    text: NotRequired[Input[str]]
    state: NotRequired[Input[bool]]
    """Add the numbers of idle nodes, and of the user's running and pending jobs."""


class Network(TypedDict):
    """Allowed network connections."""

    policies: NotRequired[Input[Any]]
    """Kind of policies that protect Slurm's daemons. `kubernetes`: NetworkPolicies, if the
    cluster's network plugin enforces them; `cilium`: CiliumNetworkPolicies, which can also match
    DNS names, the Kubernetes API and cloud metadata; `both`; `none`."""
    names: NotRequired[Input[Sequence[Input[str]]]]
    """DNS names outside the cluster that users can reach, such as 'pypi.org' or '*.debian.org'; by
    default all names. Requires policies: cilium."""
    guard: NotRequired[Input[bool]]
    """Run a packet filter in login and worker pods, independent of the network plugin. It blocks
    users from cloud metadata, the Kubernetes API, kubelets, NFS servers and Lustre servers."""
    refuse: NotRequired[Input[Sequence[Input[str]]]]
    """Further addresses to block for users, such as '10.0.0.0/16'; do not add pod addresses."""
    cilium: NotRequired[Input["Cilium"]]
    """Install and upgrade Cilium; by default the stack does not change the cluster's network."""


class Nfs(TypedDict):
    """A folder that an NFS server exports."""

    server: Input[str]
    """Host name or address of the server; the Kubernetes nodes resolve it."""
    path: Input[str]
    """The exported folder."""


class NfsExport(TypedDict):
    """A folder that an NFS server exports, with mount options."""

    server: Input[str]
    """Host name or address of the server; the Kubernetes nodes resolve it."""
    path: Input[str]
    """The exported folder."""
    options: NotRequired[Input[Sequence[Input[str]]]]
    """Mount options, such as 'nfsvers=4.2'."""


class NfsServer(TypedDict):
    """The stack's own NFS server, on a volume that only one machine mounts at a time."""

    storage_class: NotRequired[Input[str]]
    """StorageClass of the server's volume; by default the cluster's default."""
    machines: NotRequired[Input[Sequence[Input[str]]]]
    """Address ranges of the Kubernetes nodes, such as '10.0.0.0/16', without pod addresses. Only
    these nodes can mount the jail. Optional with network.policies: cilium."""


class Nodeset(TypedDict):
    """Workers of one kind: nodes `<name>-0`, `<name>-1`, …"""

    name: Input[str]
    """Prefix of the node names; also a feature of the nodes."""
    kind: NotRequired[Input[str]]
    """dynamic: Slurm knows a node from its first start until its removal; static: slurm.conf lists
    the node, which is down while it is absent. A topology requires static. Nodes on demand, and
    nodes with `keep_machine`, are always static."""
    replicas: Input[int]
    """Number of nodes; with `on_demand`, the largest number of nodes that are awake."""
    on_demand: NotRequired[Input["OnDemand"]]
    """Start nodes when jobs need them, and stop idle nodes; by default all nodes always run."""
    cpus: Input[int]
    """Number of CPUs of a node; also the CPU limit of its pod."""
    sockets: NotRequired[Input[int]]
    """Number of CPU sockets; by default the machine's number, or one per CPU for static nodes."""
    threads_per_core: NotRequired[Input[int]]
    """CPUs per core; by default the machine's number, or one for static nodes."""
    cpu_request: NotRequired[Input[float]]
    """CPUs that a pod reserves in Kubernetes; by default all of them. A smaller number lets nodes
    share a machine, for development."""
    exclusive_cpus: NotRequired[Input[bool]]
    """Make the pods 'Guaranteed', so that the kubelet's CPU manager (policy 'static') gives each
    node CPUs that no other pod uses. For this, the pods' sidecar containers also get limits."""
    shared_with_pods: NotRequired[Input[bool]]
    """Let pods that Slurm schedules ('bridge') run on the machines of these nodes, beside the jobs.
    The nodes' own pods then reserve only a little in Kubernetes, and each needs its own machine."""
    pods_only: NotRequired[Input[bool]]
    """Like `shared_with_pods`, but no jobs of users run on these nodes. They are only in the
    partition 'pods', and their own pods reserve no GPUs, so that the pods of users can use them."""
    memory: Input[str]
    """Memory of a node, such as '16GiB'; also the memory limit of its pod. A part is reserved for
    Slurm's daemons."""
    ephemeral_storage: NotRequired[Input[str]]
    """Disk limit of a node's pod, such as '100GiB', for its spool and the jobs' /tmp; by default no
    limit."""
    gpus: NotRequired[Input["Gpus"]]
    features: NotRequired[Input[Sequence[Input[str]]]]
    """Further features for `sbatch --constraint`."""
    weight: NotRequired[Input[int]]
    """Scheduling weight: Slurm fills nodes of low weight first; by default 1, as in Slurm."""
    parameters: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Further parameters of slurm.conf's NodeName lines; they override those of the stack."""
    drain_grace: NotRequired[Input[int]]
    """Seconds that jobs may continue on a node that is being removed, before they are requeued."""
    roll: NotRequired[Input["Roll"]]
    node_selector: NotRequired[Input[Mapping[str, Input[str]]]]
    """Labels of the Kubernetes nodes that the nodeset's pods may run on."""
    keep_machine: NotRequired[Input[bool]]
    """Start each new pod of a node on the machine of the node's previous pod, while this machine
    exists. A node's name, topology and drain then always apply to the same machine."""
    affinity: NotRequired[Input[Mapping[str, Input[Mapping[str, Input[Any]]]]]]
    """Affinity of the pods, in Kubernetes' format."""
    tolerations: NotRequired[Input[Sequence[Input["Toleration"]]]]
    """Taints of Kubernetes nodes that the pods tolerate."""
    priority_class: NotRequired[Input[str]]
    """PriorityClass of the pods."""
    volumes: NotRequired[Input[Sequence[Input["Volume"]]]]
    """Further volumes of the pods."""
    isolation: NotRequired[Input["Isolation"]]
    pod: NotRequired[Input["Pod"]]
    limits: NotRequired[Input["ProcessLimits"]]
    checks: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Effect and limits of each check on the nodes; they override `health.checks`. false disables a
    check. A check with a key here runs even if the nodes' hardware does not require it."""


class OnDemand(TypedDict):
    """Nodes that start when a job needs them, and stop when they are idle."""

    min: NotRequired[Input[int]]
    """Number of nodes that are always awake."""
    idle: NotRequired[Input[int]]
    """Seconds without a job after which a node goes to sleep."""
    start: NotRequired[Input[int]]
    """Seconds within which a node must start, including the start of its machine. Otherwise its job
    is requeued."""
    keep: NotRequired[Input[Sequence[Input[str]]]]
    """Names of nodes that do not go to sleep once they are awake."""
    schedule: NotRequired[Input[Sequence[Input["Hours"]]]]
    """Hours in which more than `min` nodes must be awake."""
    price: NotRequired[Input[float]]
    """Price of a node for an hour, in the currency of `on_demand.ceiling`."""


class OnDemandLimits(TypedDict):
    """Limits for all nodes on demand together."""

    ceiling: NotRequired[Input[float]]
    """Highest price of all nodes on demand for an hour. A node that would raise the price above
    this value does not start. By default, there is no limit."""


class Operator(TypedDict):
    """Objects for an existing Prometheus Operator, such as that of kube-prometheus-stack."""

    labels: NotRequired[Input[Mapping[str, Input[str]]]]
    """Labels of ServiceMonitors, PodMonitors and PrometheusRules; the operator's Prometheus selects
    them with these labels."""
    dashboard_labels: NotRequired[Input[Mapping[str, Input[str]]]]
    """Labels of ConfigMaps with dashboards; Grafana selects them with these labels."""


class Operators(TypedDict):
    """Helm charts of GPU and network card vendors."""

    install: NotRequired[Input[bool]]
    """Install the charts that nodesets require; by default true if the stack creates the
    cluster."""
    driver: NotRequired[Input[bool]]
    """Let NVIDIA's operator install the GPU driver and the container toolkit; by default true if
    the machines come without them."""
    gpu_version: NotRequired[Input[str]]
    """Version of NVIDIA's chart gpu-operator."""
    network_version: NotRequired[Input[str]]
    """Version of NVIDIA's chart network-operator."""
    amd_version: NotRequired[Input[str]]
    """Version of AMD's chart amd-gpu, its device plugin."""


class Partition(TypedDict):
    """A partition: a queue over some nodesets."""

    name: Input[str]
    nodesets: Input[Sequence[Input[str]]]
    default: NotRequired[Input[bool]]
    """Make this the default partition of jobs."""
    state: NotRequired[Input[str]]
    """up: accepts and starts jobs; down: only accepts jobs; drain: only starts jobs; inactive:
    neither."""
    max_time: NotRequired[Input[str]]
    """Longest time limit of a job, such as '2-00:00:00'."""
    default_time: NotRequired[Input[str]]
    """Time limit of a job that does not request one; by default max_time."""
    min_nodes: NotRequired[Input[int]]
    """Minimum number of nodes of a job."""
    max_nodes: NotRequired[Input[int]]
    """Maximum number of nodes of a job; by default all."""
    memory_per_gpu: NotRequired[Input[str]]
    """Memory per GPU of a job that requests no memory. If all nodes have GPUs, the default is a
    node's memory divided by the number of its GPUs. If nodes differ, the smallest result counts."""
    memory_per_cpu: NotRequired[Input[str]]
    """Memory per CPU of a job that requests no memory, such as '2GiB'. The default is a node's
    memory divided by the number of its CPUs. If nodes differ, the smallest result counts."""
    priority_tier: NotRequired[Input[int]]
    """slurmctld considers jobs of higher tiers first. With slurm.preemption.type: partition_prio,
    these jobs may preempt jobs of lower tiers."""
    priority_job_factor: NotRequired[Input[int]]
    """Factor of the partition in the job's multifactor priority."""
    preempt_mode: NotRequired[Input[str]]
    """Action on the partition's jobs when they are preempted; by default slurm.preemption.mode."""
    grace_time: NotRequired[Input[int]]
    """Seconds that the partition's jobs may continue after they are preempted."""
    qos: NotRequired[Input[str]]
    """QOS with the limits of the partition; requires accounting."""
    allow_qos: NotRequired[Input[Sequence[Input[str]]]]
    """QOS that may use the partition; by default all. Requires accounting."""
    deny_qos: NotRequired[Input[Sequence[Input[str]]]]
    """QOS that may not use the partition. Requires accounting."""
    allow_accounts: NotRequired[Input[Sequence[Input[str]]]]
    """Accounts that may use the partition; by default all."""
    allow_groups: NotRequired[Input[Sequence[Input[str]]]]
    """Groups whose members may use the partition; by default all."""
    hidden: NotRequired[Input[bool]]
    """Hide the partition from users, unless a command asks for all partitions."""
    exclusive: NotRequired[Input[bool]]
    """Allocate whole nodes to jobs."""
    over_subscribe: NotRequired[Input[str]]
    """Let jobs share CPUs. no: never; yes: jobs that request it; force: always."""
    parameters: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Further parameters of slurm.conf's PartitionName lines; they override those of the stack."""


class Place(TypedDict):
    """Kubernetes nodes for the pods of a service, and the reservations of the main container."""

    node_selector: NotRequired[Input[Mapping[str, Input[str]]]]
    """Labels of the Kubernetes nodes that the pods may run on."""
    tolerations: NotRequired[Input[Sequence[Input["Toleration"]]]]
    """Taints of Kubernetes nodes that the pods tolerate."""
    priority_class: NotRequired[Input[str]]
    """PriorityClass of the pods."""
    cpus: NotRequired[Input[float]]
    """CPUs that the main container reserves, such as 0.5. There is no limit."""
    memory: NotRequired[Input[str]]
    """Memory that the main container reserves, such as '4GiB'. There is no limit."""


class Pod(TypedDict):
    """Further fields of a nodeset's pods. The policy pack checks them like all other fields."""

    image: NotRequired[Input[str]]
    """Image of slurmd's container, based on the stack's image."""
    resources: NotRequired[Input[Mapping[str, Input[int]]]]
    """Resources of a device plugin for slurmd's container, such as `rdma/hca: 1`."""
    hugepages: NotRequired[Input[Mapping[str, Input[str]]]]
    """Amount of huge pages of each page size, such as `hugepages-2Mi: 4GiB`."""
    environment: NotRequired[Input[Mapping[str, Input[str]]]]
    """Environment variables of slurmd; jobs do not get them."""
    annotations: NotRequired[Input[Mapping[str, Input[str]]]]
    """Annotations of the pods, for example to attach networks."""
    init_containers: NotRequired[Input[Sequence[Input["InitContainer"]]]]
    """Containers that run once, in this order, after `network.guard` and before all others."""


class PodUser(TypedDict):
    """A rule that lets pods of a namespace act as a Slurm user."""

    namespace: Input[str]
    """Namespace of the pods. It must exist before the deploy."""
    service_account: NotRequired[Input[str]]
    """Only pods with this service account; by default all pods of the namespace."""
    user: Input[str]
    """Name of the user."""
    uid: NotRequired[Input[int]]
    """User id, which is also the group id. Required for a user of the directory; other users have
    their uid in `users`."""
    accounts: NotRequired[Input[Sequence[Input[str]]]]
    """Accounts that the pods may use, the default first; by default all accounts of the user."""
    may_set_priority: NotRequired[Input[bool]]
    """Let the annotation `priority` of a pod replace the priority that Slurm computes; otherwise
    the annotation has no effect."""


class Policy(TypedDict):
    """What the policy pack permits for this stack, in addition to what it permits for all
    stacks."""

    registries: NotRequired[Input[Sequence[Input[str]]]]
    """Allowed image registries, in addition to the stack's own."""
    host_paths: NotRequired[Input[Sequence[Input[str]]]]
    """Folders of Kubernetes nodes that volumes may use, including everything below them."""
    exceptions: NotRequired[Input[Mapping[str, Input[Mapping[str, Input[str]]]]]]
    """For each policy, the exempt resources, each with a reason. Write a resource as its Pulumi
    name, or as type and name, such as `kubernetes:core/v1:Service::login-service`; `*` matches
    any text."""


class Preemption(TypedDict):
    """Preemption of jobs by other jobs."""

    type: NotRequired[Input[str]]
    """Jobs that can be preempted. none: no jobs; partition_prio: jobs of a lower priority_tier;
    qos: jobs of a QOS that another QOS has in `preempt`, which requires accounting."""
    mode: NotRequired[Input[str]]
    """Action on preempted jobs."""


class Priority(TypedDict):
    """The order of the queue."""

    type: NotRequired[Input[str]]
    """basic: first come, first served; multifactor: weighted factors, such as age or size."""
    age: NotRequired[Input[int]]
    """Weight of the time in the queue."""
    association: NotRequired[Input[int]]
    """Weight of the association's priority; requires accounting."""
    fairshare: NotRequired[Input[int]]
    """Weight of the fair-share factor, which depends on recent usage; requires accounting."""
    job_size: NotRequired[Input[int]]
    """Weight of the job's size."""
    partition: NotRequired[Input[int]]
    """Weight of the partition's priority_job_factor."""
    qos: NotRequired[Input[int]]
    """Weight of the QOS's priority; requires accounting."""
    tres: NotRequired[Input[Mapping[str, Input[int]]]]
    """Weights of the requested resources."""
    max_age: NotRequired[Input[str]]
    """Time in the queue at which `age` reaches its full weight."""
    decay_half_life: NotRequired[Input[str]]
    """Half-life of past usage."""
    favor_small: NotRequired[Input[bool]]
    """Let `job_size` favour small jobs."""


class ProcessLimits(TypedDict):
    """Limits of each process on a node (setrlimit(2)). The container runtime sets the defaults."""

    core: NotRequired[Input[str]]
    """Size limit of a core file."""
    open_files: NotRequired[Input[int]]
    """Number of files that a process may have open."""
    locked_memory: NotRequired[Input[str]]
    """Memory that a process may lock; RDMA requires this. By default unlimited if the pods have
    RDMA devices."""


class Purge(TypedDict):
    """Ages at which records are removed, such as '24months', '90days' or '36hours'; default: never.

    slurmdbd removes records at the beginning of each month, day or hour, depending on the unit of
    the age."""

    events: NotRequired[Input[str]]
    """Records of nodes that were down or drained."""
    jobs: NotRequired[Input[str]]
    reservations: NotRequired[Input[str]]
    steps: NotRequired[Input[str]]
    suspensions: NotRequired[Input[str]]
    transactions: NotRequired[Input[str]]
    """Records of changes to accounts, with their authors."""
    usage: NotRequired[Input[str]]
    """Usage totals by hour, day and month."""


class Qos(TypedDict):
    """A quality of service, which jobs request with `--qos`."""

    priority: NotRequired[Input[int]]
    """Priority. Its weight is slurm.priority.association, or slurm.priority.qos for a QOS."""
    min_prio_thresh: NotRequired[Input[int]]
    """Minimum priority that a job must have so that slurmctld reserves resources for it."""
    grp_jobs: NotRequired[Input[int]]
    """Limit of running jobs."""
    grp_jobs_accrue: NotRequired[Input[int]]
    """Limit of pending jobs whose priority grows with their age."""
    grp_submit_jobs: NotRequired[Input[int]]
    """Limit of pending and running jobs."""
    grp_tres: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the resources of all running jobs, such as `{cpu: 100, mem: 1TiB, gres/gpu: 8}`."""
    grp_tres_mins: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the usage of past and running jobs, in minutes of each resource."""
    grp_tres_run_mins: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the usage that running jobs can still reach until their time limits, in minutes of
    each resource."""
    grp_wall: NotRequired[Input[str]]
    """Limit of the total run time of past and running jobs."""
    max_tres_per_job: NotRequired[Input[Mapping[str, Input[Any]]]]
    max_tres_per_node: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of a job's resources on one node."""
    max_tres_mins_per_job: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of a job's usage until its time limit, in minutes of each resource."""
    max_wall: NotRequired[Input[str]]
    """Longest time limit of a job."""
    name: Input[str]
    flags: NotRequired[Input[Sequence[Input[str]]]]
    preempt: NotRequired[Input[Sequence[Input[str]]]]
    """QOS whose jobs this QOS may preempt; requires slurm.preemption.type: qos."""
    preempt_mode: NotRequired[Input[str]]
    """Action on this QOS's jobs when they are preempted; by default slurm.preemption.mode."""
    preempt_exempt_time: NotRequired[Input[str]]
    """Minimum run time of this QOS's jobs before they can be preempted."""
    grace_time: NotRequired[Input[int]]
    """Seconds that this QOS's jobs may continue after they are preempted."""
    usage_factor: NotRequired[Input[float]]
    """Factor that multiplies the usage of jobs when Slurm counts it for limits and fair-share; by
    default 1, as in Slurm."""
    usage_threshold: NotRequired[Input[float]]
    """Minimum fair-share for which Slurm accepts and starts jobs."""
    limit_factor: NotRequired[Input[float]]
    """Factor that multiplies those limits of accounts and users that are in minutes
    (`…_tres_mins`)."""
    max_jobs_per_account: NotRequired[Input[int]]
    max_jobs_per_user: NotRequired[Input[int]]
    max_jobs_accrue_per_account: NotRequired[Input[int]]
    max_jobs_accrue_per_user: NotRequired[Input[int]]
    max_submit_jobs_per_account: NotRequired[Input[int]]
    max_submit_jobs_per_user: NotRequired[Input[int]]
    max_tres_per_account: NotRequired[Input[Mapping[str, Input[Any]]]]
    max_tres_per_user: NotRequired[Input[Mapping[str, Input[Any]]]]
    max_tres_run_mins_per_account: NotRequired[Input[Mapping[str, Input[Any]]]]
    max_tres_run_mins_per_user: NotRequired[Input[Mapping[str, Input[Any]]]]
    min_tres_per_job: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Smallest amounts that a job may request."""


class Reconciler(TypedDict):
    """The reconciler drains nodes for faults and maintenance that Kubernetes reports. It also
    tries to repair nodes."""

    interval: NotRequired[Input[int]]
    """Seconds between two passes over all nodes."""
    share: NotRequired[Input[float]]
    """Maximum fraction of the nodes that the reconciler drains and repairs at a time, at least one
    node. For further nodes, the reconciler only reports the need."""
    maintenance: NotRequired[Input[Sequence[Input[str]]]]
    """Keys of annotations and taints that announce maintenance of a Kubernetes node."""
    conditions: NotRequired[Input[Mapping[str, Input[str]]]]
    """Conditions of Kubernetes nodes that mean a fault if their status is true. For each condition:
    the name of the cause, as in drain reasons and in `ladders`."""
    hardware: NotRequired[Input[Sequence[Input[str]]]]
    """Checks of the machine's hardware. If one fails, the Kubernetes node gets a taint that keeps
    new pods away."""
    ladder: NotRequired[Input[Sequence[Input[str]]]]
    """Repairs to try for a node, in this order, before an alert calls an operator. recheck: check
    again later; restart: restart the pod; reboot: reboot the machine; replace: replace the
    machine."""
    ladders: NotRequired[Input[Mapping[str, Input[Sequence[Input[str]]]]]]
    """Repairs for a single cause, such as the failed check `gpu-ecc`, instead of the repairs in
    `ladder`."""
    back_off: NotRequired[Input[int]]
    """Seconds that the first repair has to take effect. Each further repair has twice as many
    seconds as the repair before it."""
    replace: NotRequired[Input[Sequence[Input[str]]]]
    """Command with arguments that replaces a Kubernetes node. By default, the reconciler only
    deletes the Node object. The machine itself then stays, unless its cloud reacts to this."""
    replace_secret: NotRequired[Input[str]]
    """Secret in the stack's namespace. Its entries are files for the command `replace`, in
    /etc/slurmstack/replace."""
    replace_servers: NotRequired[Input[Sequence[Input[str]]]]
    """URLs of the servers that the command `replace` connects to, such as the cloud's API."""
    replace_age: NotRequired[Input[int]]
    """Minimum age, in seconds, at which a Kubernetes node may be replaced."""
    remember: NotRequired[Input[int]]
    """Seconds until the reconciler forgets a resolved cause. If the cause returns later, the
    reconciler starts with the first repair again."""
    rollout: NotRequired[Input[int]]
    """Seconds that a deploy waits for nodes to come up before it reports their state; 0: check
    once, without waiting."""


class Rest(TypedDict):
    """slurmrestd, Slurm's HTTP interface, and the tokens (JWT) that Slurm accepts."""

    replicas: NotRequired[Input[int]]
    """Number of slurmrestd pods."""
    jwks: NotRequired[Input[str]]
    """File with the public keys (JSON Web Key Set) of an identity provider: a path relative to the
    project, read at deploy time. Slurm then accepts the provider's tokens and its own tokens."""
    user_claim: NotRequired[Input[str]]
    """Claim that contains the user's name in the provider's tokens; by default `sun`, as in Slurm's
    own tokens."""
    token_lifetime: NotRequired[Input[str]]
    """Longest lifetime of a token from `scontrol token`; UNLIMITED: no limit."""


class Roll(TypedDict):
    """How pods of a nodeset are replaced after an edit. Each pod is replaced when the jobs of its
    node have ended."""

    share: NotRequired[Input[float]]
    """Maximum fraction of the nodeset's nodes that an update takes out of service at a time, at
    least one node."""
    in_maintenance: NotRequired[Input[bool]]
    """Update only nodes that are in a maintenance reservation of Slurm, all at the same time."""


class S3(TypedDict):
    """A bucket on an S3-compatible server."""

    endpoint: Input[str]
    """URL of the server, such as 'https://s3.example.org'."""
    bucket: Input[str]
    """Name of the bucket; created if it is missing and the credentials allow its creation."""
    prefix: NotRequired[Input[str]]
    """Prefix of all object names, before the cluster's name."""
    region: NotRequired[Input[str]]
    """Region for signing requests, if the server requires one."""
    secret: Input[str]
    """Secret in the stack's namespace with the credentials in its entries `access_key` and
    `secret_key`."""
    ca: NotRequired[Input[str]]
    """File with CA certificates (PEM) to verify the server: a path relative to the project, read at
    deploy time. The default is the public CA certificates."""


class Scheduler(TypedDict):
    """Scheduling of jobs by slurmctld."""

    type: NotRequired[Input[str]]
    """backfill: a job may start early if it delays no job before it; builtin: strictly in order."""
    parameters: NotRequired[Input[Mapping[str, Input[Any]]]]
    """SchedulerParameters, such as `bf_max_time: 120`; they override the stack's defaults. true
    sets a flag, false removes a default."""


class Script(TypedDict):
    """A script that begins with `#!`: its text, or a file in the project."""

    text: NotRequired[Input[str]]
    file: NotRequired[Input[str]]
    """Path of the script, relative to the project; read at deploy time."""


class Slurm(TypedDict):
    """slurm.conf and Slurm's other files."""

    scheduler: NotRequired[Input["Scheduler"]]
    preemption: NotRequired[Input["Preemption"]]
    timeouts: NotRequired[Input["Timeouts"]]
    priority: NotRequired[Input["Priority"]]
    max_jobs: NotRequired[Input[int]]
    """Maximum number of jobs that slurmctld keeps at the same time, including ended jobs."""
    prolog: NotRequired[Input["Script"]]
    """Script that runs as root on each node before a job."""
    epilog: NotRequired[Input["Script"]]
    """Script that runs as root on each node after a job."""
    task_prolog: NotRequired[Input["Script"]]
    """Script that runs as the user before each task, in the jail."""
    task_epilog: NotRequired[Input["Script"]]
    """Script that runs as the user after each task, in the jail."""
    job_submit_lua: NotRequired[Input["Lua"]]
    """Lua script that inspects each submitted job, and may change or refuse it."""
    topology: NotRequired[Input["Topology"]]
    slurmctld_parameters: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Further SlurmctldParameters, such as `max_dbd_msg_action: exit`; true sets a flag."""
    private_data: NotRequired[Input[Sequence[Input[str]]]]
    """Categories in which users see only their own entries; Slurm's operators see all entries."""
    propagated_limits: NotRequired[Input[Sequence[Input[str]]]]
    """Process limits that jobs inherit from the submitting shell, such as `NOFILE`. By default jobs
    have the limits of their node."""
    cgroups: NotRequired[Input[str]]
    """Confine jobs to the CPUs, memory, swap and devices that they requested. auto: as far as
    the node supports this; required: a node without this support accepts no jobs; disabled: only
    the pod's limits apply."""
    extra: NotRequired[Input[Mapping[str, Input[Sequence[Input[str]]]]]]
    """Further lines of Slurm's files. In slurm.conf, a key overrides the stack's value."""


class Snapshots(TypedDict):
    """VolumeSnapshots of volumes. The storage must support them."""

    jail: NotRequired[Input[str]]
    """VolumeSnapshotClass for the jail's volume; by default, this volume has no snapshots."""
    state: NotRequired[Input[str]]
    """VolumeSnapshotClass for the controller's volume; by default, this volume has no snapshots."""
    schedule: NotRequired[Input[str]]
    """Cron schedule (minute, hour, day of the month, month, day of the week), in UTC."""
    keep: NotRequired[Input[int]]
    """Number of snapshots to keep of each volume. Old ones are deleted when a new one is ready."""


class Submount(TypedDict):
    """A further volume in the jail, on all nodes, from one source."""

    name: Input[str]
    claim: NotRequired[Input[str]]
    """Name of a PersistentVolumeClaim."""
    host_path: NotRequired[Input[str]]
    """Folder of the Kubernetes node."""
    nfs: NotRequired[Input["Nfs"]]
    empty: NotRequired[Input["Empty"]]
    """Space that is deleted with the pod."""
    config_map: NotRequired[Input[str]]
    """Name of a ConfigMap; its entries are the files."""
    secret: NotRequired[Input[str]]
    """Name of a Secret; its entries are the files."""
    read_only: NotRequired[Input[bool]]
    path: Input[str]
    """Path for users, such as '/data' or '/home'."""
    login: NotRequired[Input[bool]]
    """Mount the volume on login nodes too. With `empty` and `host_path`, each node has its own
    files."""


class Switch(TypedDict):
    """A switch above other switches, or above nodes."""

    name: Input[str]
    switches: NotRequired[Input[Sequence[Input[str]]]]
    """Names of the switches below this one."""
    nodes: NotRequired[Input[str]]
    """Nodes below this switch, such as 'gpu-[0-7]'."""
    nodesets: NotRequired[Input[Sequence[Input[str]]]]
    """Nodesets whose nodes are all below this switch."""


class Timeouts(TypedDict):
    """Timeouts in seconds; 0 disables `inactive` and `wait`."""

    message: NotRequired[Input[int]]
    """Time that a daemon or client waits for a response."""
    tcp: NotRequired[Input[int]]
    """Time to set up a connection."""
    slurmctld: NotRequired[Input[int]]
    """Longest time without a response from slurmctld."""
    slurmd: NotRequired[Input[int]]
    """Longest time without a response from a node; Slurm then sets the node to down."""
    kill_wait: NotRequired[Input[int]]
    """Time between SIGTERM and SIGKILL for a job at its time limit."""
    unkillable_step: NotRequired[Input[int]]
    """Time that killed processes have to end, before Slurm drains the node; at least five times
    `message`."""
    inactive: NotRequired[Input[int]]
    """Longest time without a response from salloc; 0: no limit."""
    wait: NotRequired[Input[int]]
    """Time that a step's other tasks may continue after its first task has ended; 0: no limit."""
    complete: NotRequired[Input[int]]
    """Time that new jobs wait for the nodes of a completing job."""
    min_job_age: NotRequired[Input[int]]
    """Time that slurmctld keeps and shows ended jobs."""


class Toleration(TypedDict):
    """A taint of Kubernetes nodes that pods tolerate."""

    key: NotRequired[Input[str]]
    """Key of the taint; by default every key."""
    operator: NotRequired[Input[str]]
    """Equal compares the taint's value, Exists ignores it."""
    value: NotRequired[Input[str]]
    """Value of the taint, for operator Equal."""
    effect: NotRequired[Input[str]]
    """Effect of the taint; by default every effect."""
    seconds: NotRequired[Input[int]]
    """Seconds that pods stay after a NoExecute taint appears; by default, they stay forever."""


class Topology(TypedDict):
    """The network between nodes, for multi-node jobs. Only static nodesets can be in it."""

    kind: NotRequired[Input[str]]
    labels: NotRequired[Input[Sequence[Input[str]]]]
    """Levels of the network from top to bottom, if labels of Kubernetes nodes define the topology.
    A level is a name, such as 'zone', or the key of a label. With kind: block, the last level is
    the block."""
    switches: NotRequired[Input[Sequence[Input["Switch"]]]]
    """Switches, for kind tree."""
    blocks: NotRequired[Input[Sequence[Input["Block"]]]]
    """Blocks, for kind block."""
    block_sizes: NotRequired[Input[Sequence[Input[int]]]]
    """Sizes, in nodes, of the units in which Slurm plans jobs: first of a block, then of groups of
    blocks. Each size is the first size times 1, 2, 4, …; by default the size of the smallest
    block."""


class User(TypedDict):
    """A user with the same name and id on login nodes, workers and the controller."""

    name: Input[str]
    uid: Input[int]
    """User id, and group id of the user's private group."""
    ssh_keys: NotRequired[Input[Sequence[Input[str]]]]
    """Public SSH keys of the user, for logins."""
    ssh_key_files: NotRequired[Input[Sequence[Input[str]]]]
    """Files with one public key each: paths relative to the project, read at deploy time."""
    shell: NotRequired[Input[str]]


class UserPartition(TypedDict):
    """Limits of a user's jobs in one partition. They replace the user's limits in the account."""

    priority: NotRequired[Input[int]]
    """Priority. Its weight is slurm.priority.association, or slurm.priority.qos for a QOS."""
    min_prio_thresh: NotRequired[Input[int]]
    """Minimum priority that a job must have so that slurmctld reserves resources for it."""
    grp_jobs: NotRequired[Input[int]]
    """Limit of running jobs."""
    grp_jobs_accrue: NotRequired[Input[int]]
    """Limit of pending jobs whose priority grows with their age."""
    grp_submit_jobs: NotRequired[Input[int]]
    """Limit of pending and running jobs."""
    grp_tres: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the resources of all running jobs, such as `{cpu: 100, mem: 1TiB, gres/gpu: 8}`."""
    grp_tres_mins: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the usage of past and running jobs, in minutes of each resource."""
    grp_tres_run_mins: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of the usage that running jobs can still reach until their time limits, in minutes of
    each resource."""
    grp_wall: NotRequired[Input[str]]
    """Limit of the total run time of past and running jobs."""
    max_tres_per_job: NotRequired[Input[Mapping[str, Input[Any]]]]
    max_tres_per_node: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of a job's resources on one node."""
    max_tres_mins_per_job: NotRequired[Input[Mapping[str, Input[Any]]]]
    """Limit of a job's usage until its time limit, in minutes of each resource."""
    max_wall: NotRequired[Input[str]]
    """Longest time limit of a job."""
    fairshare: NotRequired[Input[int | str]]
    """Share relative to sibling associations; by default 1, as in Slurm. `parent`: fair-share uses
    the parent association."""
    max_jobs: NotRequired[Input[int]]
    """Limit of each user's running jobs."""
    max_jobs_accrue: NotRequired[Input[int]]
    """Limit of each user's pending jobs whose priority grows with their age."""
    max_submit_jobs: NotRequired[Input[int]]
    """Limit of each user's pending and running jobs."""
    qos: NotRequired[Input[Sequence[Input[str]]]]
    """QOS that jobs may request; by default those of the parent account. The root account has
    `normal`."""
    default_qos: NotRequired[Input[str]]
    """QOS of jobs that do not request one."""
    name: Input[str]


class Volume(TypedDict):
    """A further volume of the nodeset's pods, from one source."""

    name: Input[str]
    claim: NotRequired[Input[str]]
    """Name of a PersistentVolumeClaim."""
    host_path: NotRequired[Input[str]]
    """Folder of the Kubernetes node."""
    nfs: NotRequired[Input["Nfs"]]
    empty: NotRequired[Input["Empty"]]
    """Space that is deleted with the pod."""
    config_map: NotRequired[Input[str]]
    """Name of a ConfigMap; its entries are the files."""
    secret: NotRequired[Input[str]]
    """Name of a Secret; its entries are the files."""
    read_only: NotRequired[Input[bool]]
    path: Input[str]
    """Mount path in the worker. Jobs see only paths below /mnt/jail: they see /mnt/jail/data as
    /data."""


class SlurmClusterArgs(TypedDict):
    """Arguments of `SlurmCluster`."""

    kubeconfig: NotRequired[Input[str]]
    """Path of the kubeconfig; by default the one that kubectl uses."""
    context: NotRequired[Input[str]]
    """Context in the kubeconfig; by default its current context."""
    domain: NotRequired[Input[str]]
    """Domain of the cluster's own DNS."""
    cluster_name: Input[str]
    """Name of the Slurm cluster."""
    namespace: NotRequired[Input[str]]
    """Kubernetes namespace of the Slurm layer."""
    registry: NotRequired[Input[str]]
    """Registry to push images to and to pull images from. Without a registry, images are loaded
    into local nodes."""
    pull_secrets: NotRequired[Input[Sequence[Input[str]]]]
    """Secrets in the stack's namespace with the registry's credentials."""
    secrets: NotRequired[Input[Mapping[str, Input[Mapping[str, Input[str]]]]]]
    """Secrets that the stack creates in its namespace, by name, with encrypted entries. Other
    settings, such as `pull_secrets`, name them."""
    protect_data: NotRequired[Input[bool]]
    """Refuse deploys that would delete the jail or the controller's state."""
    jail: NotRequired[Input["Jail"]]
    containers: NotRequired[Input["Containers"]]
    controller: NotRequired[Input["Controller"]]
    nodesets: NotRequired[Input[Sequence[Input["Nodeset"]]]]
    on_demand: NotRequired[Input["OnDemandLimits"]]
    bridge: NotRequired[Input["Bridge"]]
    """Let Slurm schedule pods of Kubernetes; by default Slurm schedules only jobs."""
    partitions: NotRequired[Input[Sequence[Input["Partition"]]]]
    """Partitions; by default one partition, `main`, over all nodesets."""
    slurm: NotRequired[Input["Slurm"]]
    health: NotRequired[Input["Health"]]
    auth: NotRequired[Input["Auth"]]
    accounting: NotRequired[Input["Accounting"]]
    rest: NotRequired[Input["Rest"]]
    login: NotRequired[Input["Login"]]
    long_checks: NotRequired[Input["LongChecks"]]
    directory: NotRequired[Input["Directory"]]
    """LDAP directory with further users; by default there are no users except `users`."""
    network: NotRequired[Input["Network"]]
    snapshots: NotRequired[Input["Snapshots"]]
    """Scheduled snapshots of volumes; by default there are no snapshots."""
    backup: NotRequired[Input["Backup"]]
    """Scheduled backups of the queue, the accounting and the jail; by default there are none."""
    placement: NotRequired[Input[Mapping[str, Input["Place"]]]]
    operators: NotRequired[Input["Operators"]]
    monitoring: NotRequired[Input["Monitoring"]]
    policy: NotRequired[Input["Policy"]]
    reconciler: NotRequired[Input["Reconciler"]]
    users: NotRequired[Input[Sequence[Input["User"]]]]
    groups: NotRequired[Input[Sequence[Input["Group"]]]]
