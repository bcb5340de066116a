"""The disks of brokers: claims, failed and drained disks, the last copies of replicas. Pure."""
