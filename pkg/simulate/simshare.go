package simulate

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// simulatedShare is one daemon's access to the shared file system. It counts the daemon's calls,
// delays them, lets them wait for a slot, and blocks them after the daemon's death.
type simulatedShare struct {
	signal.SharedFS
	meter       *signal.CallMeter
	onCall      func()               // called at the beginning of each call
	delay       func() time.Duration // returns the delay of the next call; nil for no delay
	slots       chan struct{}        // limits the concurrent calls of all daemons
	onWrite     func(name string)    // called for each file that was written
	onCallEnd   func(op signal.Op, path string, took time.Duration)
	faultTarget *faultTarget // the daemon, if it should die; otherwise nil
}

var _ signal.Interceptor = (*simulatedShare)(nil)

// newSimulatedShare returns the access of one daemon to the file system of this machine.
func newSimulatedShare(told func(), delay func() time.Duration, slots chan struct{}) *simulatedShare {
	w := &simulatedShare{meter: new(signal.CallMeter), onCall: told, delay: delay, slots: slots, onWrite: func(string) {}, onCallEnd: func(signal.Op, string, time.Duration) {}}
	w.SharedFS = signal.NewDiskFS(w)
	return w
}

// errDaemonDead is the result of all calls after the daemon's death.
var errDaemonDead = errors.New("the daemon is dead")

// BeginCall implements signal.Interceptor. A call of a dead daemon gets no answer; it returns
// errDaemonDead only after all other daemons have returned.
func (w *simulatedShare) BeginCall(op signal.Op, path string) (time.Time, error) {
	if w.faultTarget != nil && w.faultTarget.alive.Err() != nil {
		<-w.faultTarget.released
		return time.Time{}, errDaemonDead
	}
	entered, err := w.meter.BeginCall(op, path)
	w.onCall()
	if w.delay != nil {
		time.Sleep(w.delay())
	}
	w.slots <- struct{}{}
	return entered, err
}

// EndCall implements signal.Interceptor.
func (w *simulatedShare) EndCall(op signal.Op, path string, entered time.Time) {
	<-w.slots
	w.meter.EndCall(op, path, entered)
	w.onCallEnd(op, path, time.Since(entered))
}

// WriteFile implements signal.WriteOps.
func (w *simulatedShare) WriteFile(path string, data []byte, durable bool) error {
	err := w.SharedFS.WriteFile(path, data, durable)
	if err == nil {
		w.onWrite(filepath.Base(path))
	}
	return err
}
