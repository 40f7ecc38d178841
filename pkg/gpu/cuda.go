package gpu

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// CUDAFacts are what a program that uses CUDA finds on a node: NVML may answer, and nvidia-smi work,
// although cuInit fails.
type CUDAFacts struct {
	// Init is the name of the result of cuInit, without the prefix CUDA_ERROR_: NO_DEVICE. It is
	// LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, NO_CGO, DRIVER_UNRESPONSIVE or PROBE_DIED if cuInit has not
	// returned.
	Init NVMLReturn `json:"init"`
	Code int        `json:"code,omitempty"` // the result of cuInit as a CUresult
	// the loader's message, or what happened to the process, if cuInit has not returned
	Detail string `json:"detail,omitempty"`
	// the loaded file, with links resolved: …/libcuda.so.570.86.15
	Loaded string       `json:"loaded,omitempty"`
	Count  Reading[int] `json:"count"` // devices that CUDA shows
	// CUDA_VISIBLE_DEVICES of the querying process; nil: not set
	VisibleDevices *string `json:"visible,omitempty"`
}

// inspectCUDA queries the CUDA driver. It needs a process of its own: the library may crash, hang, keep
// threads and start nvidia-modprobe, and it stays loaded until the process ends. It creates no context,
// and so uses no memory of any GPU.
func inspectCUDA() CUDAFacts {
	var f CUDAFacts
	if visible, set := os.LookupEnv(VisibleDevicesVariable); set {
		visible = textutil.SingleLine(visible, maxTextLength)
		f.VisibleDevices = &visible
	}
	queryCUDA(&f)
	return f
}

// ProbeCUDA reports what a program that uses CUDA would find on this node. It queries the CUDA
// driver in a short-lived child process. If the query fails, CUDAFacts.Init contains the reason.
// ProbeCUDA returns an error only if the context has ended: its cause.
func (c Child) ProbeCUDA(ctx context.Context) (CUDAFacts, error) {
	facts := c.requestCUDA(ctx)
	if ctx.Err() != nil {
		return CUDAFacts{}, context.Cause(ctx)
	}
	return facts, nil
}

func (c Child) requestCUDA(ctx context.Context) CUDAFacts {
	d, err := c.startChild(ctx)
	if err != nil {
		return CUDAFacts{Init: ProbeDied, Detail: err.Error()}
	}
	a := d.sendRequest(requestCUDA)
	late := time.NewTimer(c.probeTimeout())
	defer late.Stop()
	l, err := a.readMessage(ctx, late, c.probeTimeout())
	a.stopReading()
	if err == nil && l.CUDA != nil {
		d.shutDown(ctx)
		return *l.CUDA
	}
	d.KillOrAbandon()
	why, detail := d.failureReason(err)
	return CUDAFacts{
		Init: cmp.Or(why, ProbeDied), Detail: cmp.Or(detail, "it gave an unexpected response"),
	}
}
