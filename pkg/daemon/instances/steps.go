package instances

import (
	"github.com/bringupd/bringupd/pkg/daemon/stepwatch"
)

// stepProcess returns the process of a rank of a generation, whose steps are watched.
func (s *supervisor) stepProcess(rank, generation int) stepwatch.Process {
	if len(s.instance.Processes) == 1 && !s.role.Placement.HasRanks {
		rank = -1
	}
	return stepwatch.Process{Instance: s.instance.Number, Generation: generation, Rank: rank}
}

// stepReporter returns the function that records the steps that the ranks of a generation report
// themselves. Only those of primary roles are steps of the job.
func (s *supervisor) stepReporter(generation int) func(rank int, step float64) {
	if !s.role.Primary {
		return func(int, float64) {}
	}
	return func(rank int, step float64) {
		s.cfg.Steps.ReportProcessStep(s.stepProcess(rank, generation), step)
	}
}

// flushSteps publishes the last steps of a generation that has ended, before its end is published. A
// failure does not wait for that.
func (s *supervisor) flushSteps(hasFailed bool) {
	switch {
	case !s.role.Primary:
	case hasFailed:
		s.cfg.Background(s.cfg.Steps.Flush)
	default:
		s.cfg.Steps.Flush(s.cfg.WorkCtx)
	}
}
