// A driver of dynamic resources for the dev cluster. It publishes the GPUs of the fake driver in the form in which
// NVIDIA's driver publishes them, and gives claims the CDI devices of NVIDIA's container toolkit.
//
// usage: NODE_NAME=... podium-dra-driver LIBNVIDIA_ML
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const driverName = "gpu.nvidia.com"

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "podium-dra-driver: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	node := os.Getenv("NODE_NAME")
	if len(os.Args) != 2 || node == "" {
		return fmt.Errorf("usage: NODE_NAME=NODE podium-dra-driver LIBNVIDIA_ML (got NODE_NAME=%q and %q)", node, os.Args[1:])
	}
	gpus, err := readGpus(os.Args[1])
	if err != nil {
		return err
	}
	configuration, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(configuration)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(kubeletplugin.KubeletPluginsDir, driverName), 0o750); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	plugin := newPlugin(node, gpus, stop)
	helper, err := kubeletplugin.Start(ctx, plugin,
		kubeletplugin.DriverName(driverName),
		kubeletplugin.NodeName(node),
		kubeletplugin.KubeClient(client),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices(gpus)}}}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
	if err := helper.PublishResources(ctx, resources); err != nil {
		return err
	}
	fmt.Printf("published %d GPUs of node %s\n", len(gpus), node)
	<-ctx.Done()
	return plugin.failure
}
