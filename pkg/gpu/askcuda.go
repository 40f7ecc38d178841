package gpu

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

// CUDA asks CUDA's driver what a program would find, with a child of its own that ends then: the library may crash, and
// keeps threads and files. Where it gives no answer that is in Facts.Init; the error is the cause of the context's end.
func (c Child) CUDA(ctx context.Context) (cuda.Facts, error) {
	facts, err := c.askCUDA(ctx)
	if ctx.Err() != nil {
		return cuda.Facts{}, context.Cause(ctx)
	}
	if err != nil {
		facts = cuda.Facts{Init: cuda.Answer{Code: cuda.Died}, Detail: err.Error()}
	}
	return facts, nil
}

func (c Child) askCUDA(ctx context.Context) (cuda.Facts, error) {
	d, err := c.start(ctx)
	if err != nil {
		return cuda.Facts{}, err
	}
	a := d.ask(askCUDA)
	late := patient(c.deadline())
	defer late.Stop()
	l, err := a.read(ctx, late)
	a.forget()
	switch why, detail := d.failure(err); {
	case err == nil && l.CUDA != nil:
		d.end(ctx)
		return *l.CUDA, nil
	case why == DriverUnresponsive:
		d.abandon()
		return cuda.Facts{Init: cuda.Answer{Code: cuda.Unresponsive}, Detail: detail}, nil
	default:
		d.abandon()
		return cuda.Facts{Init: cuda.Answer{Code: cuda.Died}, Detail: cmp.Or(detail, "it gave another answer")}, nil
	}
}

// cudaLibrary is the libcuda beside a libnvidia-ml that was named, as both are in a driver's own folder; empty, for the
// loader's choice, where there is none.
func cudaLibrary(nvml string) string {
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
