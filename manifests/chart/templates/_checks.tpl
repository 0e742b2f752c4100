{{- define "frameworkcontroller.generatedChecks" -}}
{{- if and .Values.dashboard.enabled (not (and .Values.history.enabled .Values.history.archive.enabled)) }}
{{- fail "dashboard.enabled needs history.enabled and history.archive.enabled" }}
{{- end }}
{{- end }}
