{{- define "magnetar.fullname" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "magnetar.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "magnetar.labels" -}}
{{ include "magnetar.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "magnetar.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* The name of a secret: given, or made of the release's name and a word. */}}
{{- define "magnetar.secret" -}}
{{- .given | default (printf "%s-%s" (include "magnetar.fullname" .root) .word) -}}
{{- end -}}

{{/* host:port of every server of a StatefulSet, with commas. */}}
{{- define "magnetar.servers" -}}
{{- $name := printf "%s-%s" (include "magnetar.fullname" .root) .component -}}
{{- range $n := until (int .replicas) -}}
{{- if $n }},{{ end }}{{ $name }}-{{ $n }}.{{ $name }}.{{ $.root.Release.Namespace }}.svc.{{ $.root.Values.clusterDomain }}:{{ $.port }}
{{- end -}}
{{- end -}}

{{- define "magnetar.metadataUrl" -}}
{{- $m := .Values.metadata -}}
{{- if eq $m.kind "external" -}}
{{ required "metadata.url: an external metadata service has a URL, zk://… or etcd://…" $m.url }}
{{- else if eq $m.kind "zookeeper" -}}
zk://{{ include "magnetar.servers" (dict "root" . "component" "zookeeper" "replicas" $m.zookeeper.replicas "port" 2181) }}/ledgers
{{- else -}}
etcd://{{ include "magnetar.servers" (dict "root" . "component" "etcd" "replicas" $m.etcd.replicas "port" 2379) }}/ledgers
{{- end -}}
{{- end -}}

{{- define "magnetar.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .user }}
runAsGroup: {{ .user }}
fsGroup: {{ .user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "magnetar.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Spreads the pods of a component over nodes and zones. */}}
{{- define "magnetar.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "magnetar.selector" . | nindent 8 }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "magnetar.selector" . | nindent 8 }}
{{- end -}}

{{- define "magnetar.place" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Names of the pod, for options that name it. */}}
{{- define "magnetar.podEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end -}}

{{/* Settings as variables. */}}
{{- define "magnetar.settings" -}}
{{- range $name, $value := . }}
- name: MAGNETAR_{{ upper $name }}
  value: {{ if kindIs "float64" $value }}{{ $value | int64 | quote }}{{ else }}{{ $value | toString | quote }}{{ end }}
{{- end }}
{{- end -}}

{{/* Settings of a process that serves clients: TLS and authentication. `own`: word of its secret of TLS. */}}
{{- define "magnetar.servingEnv" -}}
{{- $v := .root.Values }}
- name: MAGNETAR_CLUSTER
  value: {{ $v.clusterName | quote }}
- name: MAGNETAR_HOST
  value: 0.0.0.0
- name: MAGNETAR_LOG_JSON
  value: "true"
{{- if $v.tls.enabled }}
- name: MAGNETAR_PLAIN_HOST
  value: 127.0.0.1
- name: MAGNETAR_TLS_CERTIFICATE
  value: /etc/magnetar/tls/tls.crt
- name: MAGNETAR_TLS_KEY
  value: /etc/magnetar/tls/tls.key
{{- end }}
{{- if $v.auth.enabled }}
- name: MAGNETAR_AUTHENTICATION
  value: token
{{- if $v.auth.publicKey }}
- name: MAGNETAR_TOKEN_PUBLIC_KEY
  value: /etc/magnetar/auth/token-public.key
{{- else }}
- name: MAGNETAR_TOKEN_SECRET_KEY
  value: /etc/magnetar/auth/token-secret.key
{{- end }}
- name: MAGNETAR_SUPERUSER_ROLES
  value: {{ join "," $v.auth.superuserRoles | quote }}
- name: MAGNETAR_METRICS_ROLES
  value: {{ join "," $v.auth.metricsRoles | quote }}
{{- else }}
- name: MAGNETAR_INSECURE
  value: "true"
{{- end }}
{{- end -}}

{{- define "magnetar.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .tls }}
- name: tls
  mountPath: /etc/magnetar/tls
  readOnly: true
{{- end }}
{{- if .auth }}
- name: auth
  mountPath: /etc/magnetar/auth
  readOnly: true
{{- end }}
{{- end -}}

{{- define "magnetar.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 1Gi
{{- if .tls }}
- name: tls
  secret:
    secretName: {{ .tls }}
    defaultMode: 0440
{{- end }}
{{- if .auth }}
- name: auth
  secret:
    secretName: {{ .auth }}
    defaultMode: 0440
    {{- with .items }}
    items:
      {{- range . }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
    {{- end }}
{{- end }}
{{- end -}}

{{/* Probes of a process whose pages are at /status.html. `ready`: path of the readiness. */}}
{{- define "magnetar.probes" -}}
startupProbe:
  httpGet: {path: {{ .live }}, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 2
  failureThreshold: 150
readinessProbe:
  httpGet: {path: {{ .ready }}, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 5
  timeoutSeconds: 4
  failureThreshold: 2
livenessProbe:
  httpGet: {path: {{ .live }}, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{- define "magnetar.claim" -}}
- metadata:
    name: data
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .class }}
    storageClassName: {{ . }}
    {{- end }}
    resources:
      requests:
        storage: {{ .size }}
{{- end -}}

{{/* Ports of brokers and of the standalone: with TLS on, other pods reach those with TLS only. */}}
{{- define "magnetar.servingPorts" -}}
{{- if .Values.tls.enabled -}}
- {name: pulsar-tls, port: 6651, targetPort: pulsar-tls}
- {name: https, port: 8443, targetPort: https}
{{- else -}}
- {name: pulsar, port: 6650, targetPort: pulsar}
- {name: http, port: 8080, targetPort: http}
{{- end -}}
{{- end -}}

{{- define "magnetar.containerPorts" -}}
{{- if .Values.tls.enabled -}}
- {name: pulsar-tls, containerPort: 6651}
- {name: https, containerPort: 8443}
{{- else -}}
- {name: pulsar, containerPort: 6650}
- {name: http, containerPort: 8080}
{{- end -}}
{{- end -}}
