"""A real Kubernetes cluster from one command, and the tests that use it as a person would.

`python -m e2e` brings a cluster up, builds the images, runs `e2e/tests` and takes everything down again. Where the
cluster comes from is a provider's matter (`providers`); the tests only get a kubeconfig and names of images. The
control plane alone (`control_plane`) also serves tests/operator/real_api. See docs/internals/end-to-end-tests.md.
"""
