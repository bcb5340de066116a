{{/* Whether this release installs a CustomResourceDefinition: it does not exist, or this release has installed it. One that
another release or a person has installed stays as it is, so that helm does not refuse a second release. */}}
{{- define "ottla.installs" -}}
{{- if .root.Values.crds.install -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .crd -}}
{{- $by := dig "metadata" "annotations" (dict) ($there | default (dict)) -}}
{{- $mine := and (eq (get $by "meta.helm.sh/release-name") .root.Release.Name) (eq (get $by "meta.helm.sh/release-namespace") .root.Release.Namespace) -}}
{{- if or (not $there) $mine -}}true{{- end -}}
{{- end -}}
{{- end -}}
