"""Jobs in users' images: `srun --container-image`."""
