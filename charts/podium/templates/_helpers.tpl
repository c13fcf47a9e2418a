{{/* Names contain the release's name, so that two releases never share an object. */}}
{{- define "podium.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 45 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 45 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "podium.selector" -}}
app.kubernetes.io/name: podium
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "podium.labels" -}}
{{ include "podium.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A container runtime that reads tag and digest pulls by the digest; the tag is for people. */}}
{{- define "podium.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* kube-scheduler of the cluster's version, without a vendor's suffix (v1.36.3-gke.1), which has no upstream image. */}}
{{- define "podium.schedulerImage" -}}
{{- if .Values.scheduler.image }}{{ .Values.scheduler.image }}{{ else }}registry.k8s.io/kube-scheduler:{{ regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version }}{{ end }}
{{- end }}

{{/* Pod Security "restricted", for all components except the agent. OpenShift assigns the user from the namespace's range
and refuses any other. */}}
{{- define "podium.podSecurity" -}}
runAsNonRoot: true
{{- if not .Values.openshift.enabled }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "podium.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "podium.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "podium.priorityClass" -}}
{{- if .Values.priorityClass.name }}
priorityClassName: {{ .Values.priorityClass.name }}
{{- end }}
{{- end }}

{{/* Environment of every component of Podium. */}}
{{- define "podium.env" -}}
- name: PODIUM_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: PODIUM_LOG_FORMAT
  value: {{ .Values.logFormat }}
- name: PODIUM_LOG_LEVEL
  value: {{ .Values.logLevel }}
{{- end }}

{{/* Node selection of a pod; .pods is the part of the values for its component. */}}
{{- define "podium.nodeSelection" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "podium.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150 # five minutes: a node that has just booted starts all of its pods at once
livenessProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  periodSeconds: 10
  timeoutSeconds: 5
  terminationGracePeriodSeconds: 5 # a process that hangs ignores SIGTERM
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  periodSeconds: 2
  timeoutSeconds: 5
{{- end }}
