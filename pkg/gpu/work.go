package gpu

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

// Work has a child of its own put those GPUs to work, by their UUIDs as NVML has them, and returns what they have done:
// see cuda.Work. A child that takes longer than cuda.WorkDeadline, or Child.Deadline if that is set, is killed, and what
// its GPUs had done by then is returned. Somebody should keep the GPUs attached meanwhile, as a Session does: no driver is
// killed in the middle of that then. The error is the cause of the context's end.
func (c Child) Work(ctx context.Context, uuids []string, long bool) (cuda.Worked, error) {
	if c.Env == nil {
		c.Env = os.Environ()
	}
	c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(entry string) bool { return strings.HasPrefix(entry, VisibleVariable+"=") })
	// What the driver assembles it would keep in the user's home, which may be a share.
	c.Env = append(c.Env, VisibleVariable+"="+strings.Join(uuids, ","), "CUDA_CACHE_DISABLE=1")
	d, err := c.start(ctx)
	switch {
	case ctx.Err() != nil:
		return cuda.Worked{}, context.Cause(ctx)
	case err != nil:
		return cuda.Worked{End: cuda.Answer{Code: cuda.Died}, Detail: err.Error()}, nil
	}
	limit := cuda.WorkDeadline(long)
	if c.Deadline > 0 {
		limit = c.Deadline
	}
	worked, err := d.work(ctx, limit, map[bool]question{false: askWork, true: askWorkLong}[long])
	if why, detail := d.failure(err); why != "" {
		worked.End, worked.Detail = cuda.Answer{Code: cuda.Died}, detail
		if why == DriverUnresponsive {
			worked.End.Code = cuda.Unresponsive
		}
		d.abandon()
	} else {
		d.end(ctx)
	}
	if ctx.Err() != nil {
		return cuda.Worked{}, context.Cause(ctx)
	}
	return worked, nil
}

// work asks for work, and returns what was last told of it. The errors are those of read.
func (d *dialog) work(ctx context.Context, limit time.Duration, what question) (worked cuda.Worked, err error) {
	a := d.ask(what)
	defer a.forget()
	late := patient(limit)
	defer late.Stop()
	for {
		l, err := a.read(ctx, late)
		if err != nil {
			return worked, err
		}
		if l.Worked == nil {
			continue
		}
		if worked = *l.Worked; worked.Took > 0 {
			return worked, nil
		}
	}
}
