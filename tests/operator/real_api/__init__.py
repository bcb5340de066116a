"""The operator against a real API server: etcd, kube-apiserver, nothing else. Marker `kubernetes`."""
