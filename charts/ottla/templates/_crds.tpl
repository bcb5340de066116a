{{/* Whether this release installs a CustomResourceDefinition: nobody has yet, or this very release. One that another
release or somebody by hand has installed stays as it is, so that a second release is not refused over it. */}}
{{- define "ottla.installs" -}}
{{- if .root.Values.crds.install -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .crd -}}
{{- $by := dig "metadata" "annotations" (dict) ($there | default (dict)) -}}
{{- $mine := and (eq (get $by "meta.helm.sh/release-name") .root.Release.Name) (eq (get $by "meta.helm.sh/release-namespace") .root.Release.Namespace) -}}
{{- if or (not $there) $mine -}}true{{- end -}}
{{- end -}}
{{- end -}}
