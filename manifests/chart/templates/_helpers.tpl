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
{{- $config := .Values.config -}}
{{- $history := $config.history | default dict -}}
{{- if and (hasKey $config "webAddress") (not (hasSuffix ":10280" (toString $config.webAddress))) -}}
{{- fail "config.webAddress must have port 10280, the port of the probes and the Service" -}}
{{- end -}}
{{- $reports := ($config.progressReports | default dict).bindAddress | default ":10281" | toString -}}
{{- if and .Values.progress.enabled (not (hasSuffix ":10281" $reports)) -}}
{{- fail "config.progressReports.bindAddress must have port 10281, the port of the Service" -}}
{{- end -}}
{{- if and (gt (int .Values.controller.replicas) 1) (eq "false" (toString ($config.leaderElection | default dict).enabled)) -}}
{{- fail "config.leaderElection.enabled: false needs controller.replicas: 1: without election, all replicas act" -}}
{{- end -}}
{{- if and .Values.namespaceScoped.enabled (ne ($config.namespace | default .Release.Namespace) .Release.Namespace) -}}
{{- fail "config.namespace must be the release's namespace with namespaceScoped.enabled" -}}
{{- end -}}
{{- if .Values.history.enabled -}}
{{- if not (or .Values.history.archive.enabled $history.url) -}}
{{- fail "history.enabled without history.archive.enabled needs config.history.url" -}}
{{- end -}}
{{- if and .Values.namespaceScoped.enabled (not $history.cluster) -}}
{{- fail "history.enabled with namespaceScoped.enabled needs config.history.cluster, the cluster's name in the records" -}}
{{- end -}}
{{- end -}}
{{- end }}
