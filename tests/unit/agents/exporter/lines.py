"""Lines of a snapshot, made up."""


def node_line(
    gres: str = "", used: str = "", tres: str = "cpu=8,mem=64G,billing=8", machine: str = ""
) -> str:
    sizes = "8\t2\t65536\t1024\t\t\t"
    return f"node\tgpu-0\tMIXED+CLOUD\tmain,gpu\t{sizes}{gres}\t{used}\t{tres}\t\t0\t{machine}\n"
