package instances

import (
	"context"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/service"
)

// silenceTimeout is how long a process that has printed an error may be silent before that is
// reported, or half of the time after which the instance hangs: the error is part of that verdict.
const silenceTimeout = time.Minute

// watchSilence reports the processes of a generation of a primary role on this node that have printed
// an error and nothing since. Servers may be silent for long. Its task ends with ctx.
func (g *generation) watchSilence(ctx context.Context, s *supervisor, tasks *sync.WaitGroup) {
	if !s.role.Primary || s.cfg.StandIns != nil {
		return
	}
	watch := service.SilenceWatch{After: silenceTimeout, CPUTimes: s.cfg.CPUTimes}
	watch.OnChange = func(program process.Handle, errorLine string) {
		errorLine = textutil.HideValues(errorLine, s.environment.keys())
		s.cfg.Children.SetSilentError(program.Name(), errorLine)
		if s.cfg.RunCtx.Err() == nil && s.stop.Err() == nil { // otherwise it is the end of all
			_, silent := program.OutputStats()
			s.cfg.Host.ReportSilence(program.Name(), s.cfg.Children.LogName(program.Name()), errorLine, silent)
		}
	}
	if s.role.HangTimeout > 0 {
		watch.After = min(watch.After, s.role.HangTimeout/2)
	}
	for _, one := range g.started {
		watch.Programs = append(watch.Programs, one.Handle)
	}
	tasks.Go(func() { watch.Run(ctx) })
}
