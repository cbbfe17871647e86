"""Send the daemons' log lines to a collector: see docs/logs.md.

The kubelet keeps the lines until the collector has them: an agent that cannot send stops reading.
"""
