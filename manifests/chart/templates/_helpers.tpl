{{- define "frameworkcontroller.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* The controller's configuration: the shipped one, with the values in `config`. */}}
{{- define "frameworkcontroller.config" -}}
{{- include "frameworkcontroller.checks" . -}}
{{- $shipped := include "frameworkcontroller.shippedConfig" . | fromYaml -}}
{{- mergeOverwrite $shipped (deepCopy .Values.config) | toYaml -}}
{{- end }}

{{- define "frameworkcontroller.checks" -}}
{{- include "frameworkcontroller.generatedChecks" . -}}
{{- $history := .Values.config.history | default dict -}}
{{- if .Values.history.enabled -}}
{{- if not (or .Values.history.archive.enabled $history.url) -}}
{{- fail "history.enabled without history.archive.enabled needs config.history.url" -}}
{{- end -}}
{{- if and .Values.namespaceScoped.enabled (not $history.cluster) -}}
{{- fail "history.enabled with namespaceScoped.enabled needs config.history.cluster, the cluster's name in the records" -}}
{{- end -}}
{{- end -}}
{{- end }}
