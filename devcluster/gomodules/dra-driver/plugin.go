package main

import (
	"context"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// plugin prepares claims. The helper calls one method at a time.
type plugin struct {
	node     string
	gpus     map[string]gpu       // by the name of the device
	prepared map[string]types.UID // claim of each device
	stop     func()
	failure  error
}

func newPlugin(node string, gpus []gpu, stop func()) *plugin {
	byName := map[string]gpu{}
	for _, one := range gpus {
		byName[one.name()] = one
	}
	return &plugin{node: node, gpus: byName, prepared: map[string]types.UID{}, stop: stop}
}

// PrepareResourceClaims returns the CDI devices of each claim, in the specification of NVIDIA's container toolkit.
func (p *plugin) PrepareResourceClaims(
	_ context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		given, err := p.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: given, Err: err}
		fmt.Printf("claim %s/%s: %d devices, error: %v\n", claim.Namespace, claim.Name, len(given), err)
	}
	return results, nil
}

func (p *plugin) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	var given []kubeletplugin.Device
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != driverName {
			continue
		}
		one, known := p.gpus[result.Device]
		if result.Pool != p.node || !known {
			return nil, fmt.Errorf("node %s has no device %s of the pool %s", p.node, result.Device, result.Pool)
		}
		if other, taken := p.prepared[result.Device]; taken && other != claim.UID {
			return nil, fmt.Errorf("device %s is prepared for the claim %s", result.Device, other)
		}
		given = append(given, kubeletplugin.Device{
			Requests:     []string{result.Request},
			PoolName:     result.Pool,
			DeviceName:   result.Device,
			CDIDeviceIDs: []string{"nvidia.com/gpu=" + one.uuid},
		})
	}
	for _, one := range given {
		p.prepared[one.DeviceName] = claim.UID
	}
	return given, nil
}

// UnprepareResourceClaims forgets the claims.
func (p *plugin) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		for name, uid := range p.prepared {
			if uid == claim.UID {
				delete(p.prepared, name)
			}
		}
		results[claim.UID] = nil
		fmt.Printf("claim %s/%s is not prepared any more\n", claim.Namespace, claim.Name)
	}
	return results, nil
}

// HandleError ends the process on errors that would come again.
func (p *plugin) HandleError(ctx context.Context, err error, message string) {
	runtime.HandleErrorWithContext(ctx, err, message)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.failure = fmt.Errorf("%s: %w", message, err)
		p.stop()
	}
}
