{{- define "frameworkcontroller.shippedConfig" -}}
{{- if .Values.namespaceScoped.enabled }}
namespace: '{{ .Release.Namespace }}'
{{- end }}
leaderElection:
  enabled: true
  lockFile: /run/frameworkcontroller/lock
largeFrameworkCompression: true
podFailureSpec: shipped
{{- if .Values.kueue.enabled }}
kueue:
  mode: enabled
{{- end }}
{{- if .Values.progress.enabled }}
progressReports:
  bindAddress: :10281
{{- end }}
{{- if .Values.history.enabled }}
history:
  sink: http
  url: https://archive.{{ .Release.Namespace }}.svc/v1/records
  tokenFile: /var/run/secrets/frameworkcontroller-history/token
  caFile: /var/run/secrets/frameworkcontroller-history/ca.crt
{{- end }}
{{- end }}
