"""Start the plugin. Pulumi runs this folder as a program, with the package installed."""

from slurmstack.plugin import main

main()
