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
