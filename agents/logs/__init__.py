"""Send the daemons' log lines to a collector; see docs/logs.md.

If the collector is unavailable, the agent stops reading logs. Meanwhile, the kubelet keeps the
lines.
"""
