package gpu

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

// ProbeCUDA reports what a program that uses CUDA would find on this node. It queries the CUDA
// driver in a short-lived child process, because the library may crash, and keeps threads and files
// open. If the query fails, Facts.Init contains the reason. CUDA returns an error only if the
// context has ended: its cause.
func (c Child) ProbeCUDA(ctx context.Context) (cuda.Facts, error) {
	facts, err := c.queryCUDA(ctx)
	if ctx.Err() != nil {
		return cuda.Facts{}, context.Cause(ctx)
	}
	if err != nil {
		facts = cuda.Facts{Init: cuda.Result{Code: cuda.ProbeDied}, Detail: err.Error()}
	}
	return facts, nil
}

// queryCUDA starts a child, sends the request and waits for the answer. It returns an error if the
// child cannot be started.
func (c Child) queryCUDA(ctx context.Context) (cuda.Facts, error) {
	d, err := c.startChild(ctx)
	if err != nil {
		return cuda.Facts{}, err
	}
	a := d.sendRequest(requestCUDA)
	late := newRestartableTimer(c.probeTimeout())
	defer late.Stop()
	l, err := a.readMessage(ctx, late)
	a.stopReading()
	switch why, detail := d.failureReason(err); {
	case err == nil && l.CUDA != nil:
		d.shutDown(ctx)
		return *l.CUDA, nil
	case why == DriverUnresponsive:
		d.KillOrAbandon()
		return cuda.Facts{Init: cuda.Result{Code: cuda.Unresponsive}, Detail: detail}, nil
	default:
		d.KillOrAbandon()
		return cuda.Facts{Init: cuda.Result{Code: cuda.ProbeDied}, Detail: cmp.Or(detail, "it gave an unexpected response")}, nil
	}
}

// cudaLibraryPath returns the path of the libcuda in the directory of the given libnvidia-ml,
// because a driver's directory has both. It returns the empty string, with which the loader
// chooses, if the directory has none or nvml is empty.
func cudaLibraryPath(nvml string) string {
	if nvml == "" {
		return ""
	}
	file, err := filepath.EvalSymlinks(nvml)
	if err != nil {
		return ""
	}
	beside := filepath.Join(filepath.Dir(file), "libcuda.so.1")
	if _, err := os.Stat(beside); err != nil {
		return ""
	}
	return beside
}
