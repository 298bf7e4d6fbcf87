{{- define "portcullis.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "portcullis.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "portcullis.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "portcullis.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "portcullis.selectorLabels" -}}
app.kubernetes.io/name: {{ include "portcullis.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{- /* Labels of every object but for the component, which differs. */ -}}
{{- define "portcullis.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/name: {{ include "portcullis.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: {{ include "portcullis.name" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "portcullis.labels" -}}
{{ include "portcullis.commonLabels" . }}
app.kubernetes.io/component: controller
{{- with .Values.controller.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "portcullis.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "portcullis.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "portcullis.electionID" -}}
{{- default (printf "%s-leader" (include "portcullis.fullname" .)) .Values.controller.electionID -}}
{{- end -}}

{{- define "portcullis.image" -}}
{{- $image := .Values.controller.image -}}
{{- with default .Values.global.image.registry $image.registry -}}{{ . }}/{{- end -}}
{{- $image.image }}:{{ default .Chart.AppVersion $image.tag -}}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- /* The rules of one kind, Role or ClusterRole, as config/kubernetes/rbac.yaml has them, by the names of this release;
       where `resources` is given, only those that are about them. */ -}}
{{- define "portcullis.rules" -}}
{{- $fullname := include "portcullis.fullname" .root -}}
{{- $own := dict "portcullis" $fullname "portcullis-session-tickets" (printf "%s-session-tickets" $fullname) -}}
{{- $election := include "portcullis.electionID" .root -}}
{{- $_ := set $own "portcullis-leader" $election -}}
{{- /* The gateway derives the name of this Secret in the same way. */ -}}
{{- $_ := set $own "portcullis-admission" (printf "%s-admission" (trimSuffix "-leader" $election)) -}}
{{- range splitList "\n---\n" (.root.Files.Get "files/rbac.yaml") -}}
{{- $object := fromYaml . -}}
{{- if eq $object.kind $.kind -}}
{{- range $object.rules -}}
{{- $rule := . -}}
{{- if or (not $.resources) (has (first .resources) $.resources) -}}
{{- if .resourceNames -}}
{{- $names := list -}}
{{- range .resourceNames -}}{{- $names = append $names (dig . . $own) -}}{{- end -}}
{{- $_ := set $rule "resourceNames" $names -}}
{{- end }}
{{ toYaml (list $rule) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A value as text. Whole numbers stay so: Helm reads them as floating-point and would write 6.3e+07. */ -}}
{{- define "portcullis.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{- define "portcullis.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: {{ .Values.controller.image.runAsUser }}
runAsGroup: {{ .Values.controller.image.runAsGroup }}
seccompProfile: { type: RuntimeDefault }
{{- end -}}
