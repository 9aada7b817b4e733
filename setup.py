"""The packages, read from the tree: the root is `shardtrace`, each folder of api/ a module of it.

Everything else about the distribution is in pyproject.toml.
"""
from setuptools import find_packages, setup

packages = find_packages()
# The public modules live in api/, so that nothing at the root is called `numpy` or `random`.
public = find_packages("api")

setup(
    script_name="setup.py",  # the one file of the root that is not a module
    packages=["shardtrace", *(f"shardtrace.{name}" for name in (*packages, *public))],
    package_dir={
        "shardtrace": ".",
        **{f"shardtrace.{name}": f"api/{name}" for name in public if "." not in name},
    },
)
