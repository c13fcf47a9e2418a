package main

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// gpu is one GPU, as NVML reports it.
type gpu struct {
	index   int
	uuid    string
	product string
	bytes   uint64
	compute string // versions
	driver  string
	cuda    string
}

func (g gpu) name() string { return fmt.Sprintf("gpu-%d", g.index) }

// readGpus returns the GPUs of this node in the order of their indices.
func readGpus(library string) ([]gpu, error) {
	lib := nvml.New(nvml.WithLibraryPath(library))
	if code := lib.Init(); code != nvml.SUCCESS {
		return nil, fmt.Errorf("%s: %s", library, lib.ErrorString(code))
	}
	defer lib.Shutdown()
	driver, code := lib.SystemGetDriverVersion()
	if code != nvml.SUCCESS {
		return nil, fmt.Errorf("driver version: %s", lib.ErrorString(code))
	}
	cuda, code := lib.SystemGetCudaDriverVersion()
	if code != nvml.SUCCESS {
		return nil, fmt.Errorf("CUDA version: %s", lib.ErrorString(code))
	}
	count, code := lib.DeviceGetCount()
	if code != nvml.SUCCESS {
		return nil, fmt.Errorf("number of GPUs: %s", lib.ErrorString(code))
	}
	var found []gpu
	for index := range count {
		one := gpu{
			index:  index,
			driver: semantic(driver),
			cuda:   fmt.Sprintf("%d.%d.0", cuda/1000, cuda%1000/10),
		}
		if code := one.read(lib); code != nvml.SUCCESS {
			return nil, fmt.Errorf("GPU %d: %s", index, lib.ErrorString(code))
		}
		found = append(found, one)
	}
	return found, nil
}

func (g *gpu) read(lib nvml.Interface) nvml.Return {
	device, code := lib.DeviceGetHandleByIndex(g.index)
	if code != nvml.SUCCESS {
		return code
	}
	if g.uuid, code = device.GetUUID(); code != nvml.SUCCESS {
		return code
	}
	if g.product, code = device.GetName(); code != nvml.SUCCESS {
		return code
	}
	memory, code := device.GetMemoryInfo()
	if code != nvml.SUCCESS {
		return code
	}
	g.bytes = memory.Total
	major, minor, code := device.GetCudaComputeCapability()
	g.compute = fmt.Sprintf("%d.%d.0", major, minor)
	return code
}

// semantic returns a version as the API server accepts it: three numbers without leading zeros.
func semantic(version string) string {
	var major, minor, patch int
	_, _ = fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	return fmt.Sprintf("%d.%d.%d", major, minor, patch)
}

// devices returns the GPUs with the attributes of NVIDIA's driver that do not need a PCI bus.
func devices(gpus []gpu) []resourceapi.Device {
	var found []resourceapi.Device
	for _, one := range gpus {
		text := func(value string) resourceapi.DeviceAttribute {
			return resourceapi.DeviceAttribute{StringValue: &value}
		}
		version := func(value string) resourceapi.DeviceAttribute {
			return resourceapi.DeviceAttribute{VersionValue: &value}
		}
		found = append(found, resourceapi.Device{
			Name: one.name(),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type":                  text("gpu"),
				"uuid":                  text(one.uuid),
				"productName":           text(one.product),
				"brand":                 text("Nvidia"),
				"cudaComputeCapability": version(one.compute),
				"driverVersion":         version(one.driver),
				"cudaDriverVersion":     version(one.cuda),
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				"memory": {Value: *resource.NewQuantity(int64(one.bytes), resource.BinarySI)},
			},
		})
	}
	return found
}
