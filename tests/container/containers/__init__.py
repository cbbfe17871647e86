"""Jobs in images of users: `srun --container-image`."""
