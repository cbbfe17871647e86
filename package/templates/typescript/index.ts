// A Slurm cluster on the Kubernetes cluster that kubectl uses.

import * as pulumi from "@pulumi/pulumi";
import * as slurmstack from "@pulumi/slurmstack";

const config = new pulumi.Config();
const lab = new slurmstack.SlurmCluster("lab", {
    cluster_name: "lab",
    namespace: "lab",
    registry: config.require("registry"),
    jail: { size: "1TiB", storage_class: "shared" },
    nodesets: [{ name: "cpu", replicas: 2, cpus: 8, memory: "32GiB" }],
    users: [{ name: "ada", uid: 2000, ssh_keys: [config.require("ssh_key")] }],
});

export const login_address = lab.login_address;
export const login_host_key = lab.login_host_key;
export const report = lab.report;
