package query

import (
	"context"
	"net/netip"

	"github.com/bringupd/bringupd/pkg/gpu/ncclras"
	"github.com/bringupd/bringupd/pkg/health"
)

// localNCCL returns the address of this node's NCCL according to the variables of a child of the
// daemon. It returns an empty string if there is none, or if the job's NCCL uses an address of the
// user, at which any job may answer.
func localNCCL(lookup func(name string) (string, bool)) string {
	reserved, _ := lookup(ncclras.ReservedVariable)
	if used, _ := lookup(ncclras.AddressVariable); used != reserved {
		return ""
	}
	return reserved
}

// NodeHasNCCL reports whether NCCL runs in processes of this node, and can be asked. It connects to
// none of them.
func NodeHasNCCL(lookup func(name string) (string, bool)) bool {
	at, err := netip.ParseAddrPort(localNCCL(lookup))
	if err != nil {
		return false
	}
	listeners, err := health.FindListeners(int(at.Port()), int(at.Port()))
	return err == nil && len(listeners) > 0
}

// AskNodeNCCL asks the NCCL of this node's processes, and returns what is worth passing on.
func AskNodeNCCL(ctx context.Context, lookup func(name string) (string, bool)) ncclras.Summary {
	report, err := ncclras.Ask(ctx, localNCCL(lookup))
	if err != nil {
		return ncclras.Summary{Problem: err.Error(), Findings: []ncclras.Finding{}}
	}
	return report.Summarize()
}
