{{/*
What the chart knows of other systems, by the names of dialects: resources and annotations by which their pods request GPUs, and
settings, each with a regular expression of its values. Annotations of containers have one text in front of the container's name
and one behind it.
*/}}
{{- define "divvy.dialects" -}}
hami:
  resources:
    - {{ splitList "/" (.Values.cluster.resourceCount | default "nvidia.com/gpu") | first }}/priority
    {{- if eq (.Values.cluster.advertise | default "amounts") "devices" }}
    - {{ .Values.cluster.resourceMemory | default "nvidia.com/gpumem" }}
    {{- end }}
  settings:
    countAlone: whole|[0-9].*
    coresAlone: same-as-cores|[0-9].*
    compute: cap|burst
    memoryFactor: '[1-9][0-9]*'
    limitVariables: 'true|false'
nano-gpu:
  resources: [nano-gpu.io/gpu-core, nano-gpu.io/gpu-memory, nano-gpu/gpu-percent]
  settings:
    memoryUnit: '[0-9].*'
elastic-gpu:
  resources:
    - elasticgpu.io/gpu-core
    - elasticgpu.com/gpu-core
    - elasticgpu.io/gpu-memory
    - elasticgpu.com/gpu-memory
    - tke.cloud.tencent.com/qgpu-core
    - tke.cloud.tencent.com/qgpu-memory
    - tke.cloud.tencent.com/qgpu-core-greedy
  settings:
    floor: 'true|false'
gpushare:
  resources: [aliyun.com/gpu-mem, aliyun.com/gpu-core.percentage]
  settings:
    unit: Gi|Mi
    outputs: 'true|false'
gpu-model: {}
gpu-manager:
  resources: [tencent.com/vcuda-core, tencent.com/vcuda-memory]
volcano:
  resources:
    - volcano.sh/vgpu-number
    - volcano.sh/vgpu-memory
    - volcano.sh/vgpu-memory-percentage
    - volcano.sh/vgpu-cores
    - volcano.sh/gpu-memory
    - volcano.sh/gpu-number
  settings:
    memoryFactor: '[1-9][0-9]*'
kai:
  annotations: [gpu-fraction, gpu-memory]
  ofContainers:
    - [nvidia.com/container., .gpu-memory.]
    - [nvidia.cdi.k8s.io/, .gpu-memory.]
koordinator:
  resources:
    - koordinator.sh/gpu
    - koordinator.sh/gpu.shared
    - koordinator.sh/gpu-core
    - koordinator.sh/gpu-memory
    - koordinator.sh/gpu-memory-ratio
vgpu-manager:
  resources: [nvidia.com/vgpu-number, nvidia.com/vgpu-memory, nvidia.com/vgpu-cores]
  settings:
    memoryFactor: '[1-9][0-9]*'
time-slicing:
  resources: [nvidia.com/gpu.shared]
  settings:
    replicas: '[2-9]|[1-9][0-9]|100'
    resource: '[a-z0-9.-]+/[A-Za-z0-9._-]{1,63}'
    sharing: time-slicing|mps
tensor-fusion:
  annotations:
    - tensor-fusion.ai/tflops-request
    - tensor-fusion.ai/tflops-limit
    - tensor-fusion.ai/compute-percent-request
    - tensor-fusion.ai/compute-percent-limit
    - tensor-fusion.ai/vram-request
    - tensor-fusion.ai/vram-limit
    - tensor-fusion.ai/isolation
    - tensor-fusion.ai/dedicated-gpu
    - tensor-fusion.ai/workload-profile
  settings:
    tflops: '[1-9][0-9]*'
{{- end }}
