"""Meshes of devices: axes, devices, processes and memory spaces."""
