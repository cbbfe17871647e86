"""Invented lines of the output of images/agents/snapshot.c."""


def node_line(
    gres: str = "",
    used: str = "",
    tres: str = "cpu=8,mem=64G,billing=8",
    machine: str = "",
    extra: str = "",
) -> str:
    sizes, end = "8\t2\t65536\t1024\t\t\t", f"0\t{machine}\t{extra}"
    return f"node\tgpu-0\tMIXED+CLOUD\tmain,gpu\t{sizes}{gres}\t{used}\t{tres}\t\t{end}\n"


def job_line(**fields: str) -> str:
    columns = {
        "state": "RUNNING",
        "reason": "None",
        "partitions": "main",
        "account": "lab",
        "uid": "2000",
        "tasks": "",
        "eligible": "1795342732",
        "cpus": "3",
        "tres": "cpu=3,mem=300M,node=1,billing=3",
        "node": "cpu-0",
        "id": "17",
        "nodes": "cpu-[0-1]",
        "start": "1795342740",
    }
    return "\t".join(("job", *(columns | fields).values())) + "\n"
