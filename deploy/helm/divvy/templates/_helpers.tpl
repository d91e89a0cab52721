{{/*
The templates read the files of deploy/manifests and deploy/scheduler, which lie in this chart by links, put the values in
and print the objects: there is one description of each object, and both ways of installing yield the same.
*/}}

{{/* The text of a configuration file with these keys. */}}
{{- define "divvy.config" -}}
{{- toYaml (set (deepCopy .) "version" "v1") }}
{{- end }}

{{/* The configuration of divvy-webhook, with the files that the chart mounts. */}}
{{- define "divvy.webhook" -}}
{{- if .Values.webhook.extender }}
  {{- fail "webhook.extender is gone: set cluster.scheduling to extender (for on) or node (for off), and webhook.extender to null" }}
{{- end }}
{{- $keys := omit (deepCopy .Values.webhook) "extender" }}
{{- if .Values.certManager.enabled }}
  {{- $_ := set $keys "certificateDir" "/etc/divvy-tls" }}
{{- end }}
{{- include "divvy.config" $keys }}
{{- end }}

{{/* The match conditions in a text, for the dialects of the webhook's configuration. Call: list ROOT TEXT */}}
{{- define "divvy.conditions" -}}
{{- $root := first . }}
{{- $count := $root.Values.cluster.resourceCount | default "nvidia.com/gpu" }}
{{- $cores := $root.Values.cluster.resourceCores | default "nvidia.com/gpucores" | squote }}
{{- $known := include "divvy.dialects" $root | fromYaml }}
{{- $resources := list $cores }}
{{- $annotations := list }}
{{- $ofContainers := "" }}
{{- range $dialect := $root.Values.webhook.dialects }}
  {{- $settings := kindIs "string" $dialect | ternary (dict "name" $dialect) $dialect }}
  {{- if not (hasKey $known $settings.name) }}
    {{- fail (printf "webhook.dialects: %s is unknown: expected one of %s" $settings.name (keys $known | sortAlpha | join ", ")) }}
  {{- end }}
  {{- $words := get $known $settings.name }}
  {{- range $key, $value := omit $settings "name" }}
    {{- $pattern := get ($words.settings | default dict) $key }}
    {{- if not $pattern }}
      {{- fail (printf "webhook.dialects: %s has no setting %s" $settings.name $key) }}
    {{- else if not (regexMatch (printf "^(%s)$" $pattern) (toString $value)) }}
      {{- fail (printf "webhook.dialects: %v is no value of %s, a setting of %s" $value $key $settings.name) }}
    {{- end }}
  {{- end }}
  {{- range $name := kindIs "string" $settings.resource | ternary (list $settings.resource) ($words.resources | default list) }}
    {{- if ne $name $count }}
      {{- $resources = append $resources (squote $name) }}
    {{- end }}
  {{- end }}
  {{- range $words.annotations }}
    {{- $annotations = append $annotations (squote .) }}
  {{- end }}
  {{- range $words.ofContainers }}
    {{- $ofContainers = printf "%s || (key.startsWith('%s') && key.contains('%s'))" $ofContainers (first .) (last .) }}
  {{- end }}
{{- end }}
{{- $text := last . | replace (printf "%s]" $cores) (join ", " $resources | printf "%s]") }}
{{- with $annotations }}
  {{- $ours := "key.startsWith('divvy.dev/')" }}
  {{- $theirs := join ", " . | printf "key in [%s]" }}
  {{- $text = $text | replace (printf "%s) ||" $ours) (printf "%s || %s%s) ||" $ours $theirs $ofContainers) }}
{{- end }}
{{- $text }}
{{- end }}

{{/* The text of a file, with the names of this release. Call: list ROOT FILE */}}
{{- define "divvy.text" -}}
{{- $root := first . }}
{{- $text := $root.Files.Get (last .) | replace "divvy-system" $root.Release.Namespace }}
{{- $keys := $root.Values.cluster }}
{{- $count := $keys.resourceCount | default "nvidia.com/gpu" }}
{{- $memory := $keys.resourceMemory | default "nvidia.com/gpumem" }}
{{- $isAmount := hasSuffix "policy.yaml" (last .) }}
{{- if and (eq ($keys.advertise | default "amounts") "devices") (not $isAmount) }}
  {{- $memory = printf "%s-%vmi" $memory ($keys.memoryUnit | default 256) }}
{{- end }}
{{- $text | replace "'nvidia.com/gpu'" (squote $count)
          | replace "'nvidia.com/mig-'" (splitList "/" $count | first | printf "'%s/mig-'")
          | replace "'nvidia.com/gpumem'" (squote $memory)
          | replace "'nvidia.com/gpumem-percentage'" ($keys.resourceMemoryPercentage | default "nvidia.com/gpumem-percentage" | squote)
          | replace "'nvidia.com/gpucores'" ($keys.resourceCores | default "nvidia.com/gpucores" | squote) }}
{{- end }}

{{/* One object as YAML. Call: list ROOT OBJECT */}}
{{- define "divvy.object" }}
{{- $object := last . }}
{{- with (first .).Values.extraLabels }}
  {{- $_ := set $object.metadata "labels" (merge (dict) ($object.metadata.labels | default dict) .) }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}

{{/* All objects of a file as they are. Call: list ROOT FILE */}}
{{- define "divvy.file" }}
{{- $root := first . }}
{{- range $text := include "divvy.text" . | splitList "\n---\n" }}
  {{- include "divvy.object" (list $root (fromYaml $text)) }}
{{- end }}
{{- end }}

{{/* Puts an image and fields of values into a pod template. Call: list ROOT TEMPLATE IMAGE FIELDS */}}
{{- define "divvy.pod" }}
{{- $root := index . 0 }}
{{- $template := index . 1 }}
{{- $fields := index . 3 }}
{{- $container := first $template.spec.containers }}
{{- $_ := set $container "image" (index . 2) }}
{{- range $field, $value := omit $fields "enabled" "replicas" "resources" "annotations" }}
  {{- $_ := set $template.spec $field $value }}
{{- end }}
{{- with $fields.resources }}
  {{- $_ := set $container "resources" . }}
{{- end }}
{{- with $fields.annotations }}
  {{- $_ := set $template.metadata "annotations" . }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
  {{- $_ := set $template.spec "imagePullSecrets" . }}
{{- end }}
{{- with $root.Values.extraLabels }}
  {{- $_ := set $template.metadata "labels" (merge (dict) $template.metadata.labels .) }}
{{- end }}
{{- end }}

{{/* Mounts directories that the daemon's configuration moves where it says, at the same path on the host; but a kubelet has its
     directory for plugins in /var/lib/kubelet whatever its own is (kubelet, pluginapi.KubeletSocket). Call: list ROOT SPEC */}}
{{- define "divvy.moved" }}
{{- $keys := (index . 0).Values.node }}
{{- $spec := index . 1 }}
{{- $moved := dict }}
{{- range $volume, $key := dict "state" "stateDir" "run" "runDir" "cdi" "cdiDir" }}
  {{- with get $keys $key }}
    {{- $_ := set $moved $volume . }}
  {{- end }}
{{- end }}
{{- range $volume := list "device-plugins" "pod-resources" }}
  {{- with $keys.kubeletRootDir }}
    {{- $_ := set $moved $volume (printf "%s/%s" . $volume) }}
  {{- end }}
{{- end }}
{{- range $volume := $spec.volumes }}
  {{- with get (omit $moved "device-plugins") $volume.name }}
    {{- $_ := set $volume.hostPath "path" . }}
  {{- end }}
{{- end }}
{{- range $container := concat ($spec.initContainers | default list) $spec.containers }}
  {{- range $mount := $container.volumeMounts }}
    {{- with get $moved $mount.name }}
      {{- $_ := set $mount "mountPath" . }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}
