module podium.dev/devcluster/trainer

go 1.26.0

require github.com/kubeflow/trainer/v2 v2.2.0
