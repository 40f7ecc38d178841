package simulate

import (
	"path/filepath"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// maxConcurrentCalls is the maximum number of concurrent calls of all daemons together, because
// each call occupies a thread. It is more than the client of one machine sends to a server, and
// more than a server processes concurrently. Go gives up at 10,000 threads.
const maxConcurrentCalls = 512

// simulatedShare is one daemon's access to the shared file system. It counts the daemon's calls,
// delays them, and lets them wait for a slot.
type simulatedShare struct {
	signal.SharedFS
	job   *simulatedJob
	node  int
	meter *signal.CallMeter
}

var _ signal.Interceptor = (*simulatedShare)(nil)

// newSimulatedShare returns the access of one daemon to the file system of this machine.
func (j *simulatedJob) newSimulatedShare(node int) *simulatedShare {
	s := &simulatedShare{job: j, node: node, meter: new(signal.CallMeter)}
	s.SharedFS = signal.NewDiskFS(s)
	return s
}

// BeginCall implements signal.Interceptor.
func (s *simulatedShare) BeginCall(op signal.Op, path string) (time.Time, error) {
	began, err := s.meter.BeginCall(op, path)
	s.job.clock.countCall()
	time.Sleep(s.job.cfg.Latency)
	s.job.slots <- struct{}{}
	return began, err
}

// EndCall implements signal.Interceptor.
func (s *simulatedShare) EndCall(op signal.Op, path string, began time.Time) {
	<-s.job.slots
	s.meter.EndCall(op, path, began)
	now := s.job.clock.sinceStart()
	s.job.trace.addCall(TracedCall{s.node, string(op), path, now - time.Since(began), now})
}

// WriteFile is that of the share. The daemon reports its milestones by the marks that it
// writes.
func (s *simulatedShare) WriteFile(path string, data []byte, durable bool) error {
	err := s.SharedFS.WriteFile(path, data, durable)
	if err == nil {
		s.job.noteMilestone(s.node, filepath.Base(path))
	}
	return err
}
