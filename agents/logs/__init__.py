"""Sends the daemons' lines to a collector of logs: see docs/logs.md.

Lines stay where the kubelet keeps them until the collector has them: who cannot send stops reading.
"""
