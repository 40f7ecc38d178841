package lifecycle

import (
	"time"

	"go.uber.org/zap"
)

// OutageReporter logs, on the head, the nodes for which the shared file system is unresponsive.
type OutageReporter struct {
	*Monitor
	NodeNames func(nodes []int) string // for messages

	since    time.Time // when the present outage was detected; zero if there is none
	reported bool
}

// LogChanges logs an outage that lasts longer than the peer timeout, and its end. It must be called
// regularly.
func (o *OutageReporter) LogChanges(now time.Time) {
	stalled := o.Links.UnresponsivePeers()
	if o.FileSystemSilence() > UnresponsiveTimeout {
		stalled = append([]int{0}, stalled...)
	}
	switch {
	case len(stalled) == 0:
		if o.reported {
			o.Log.Warn("the shared file system responds to all nodes again",
				zap.Duration("after", now.Sub(o.since).Round(time.Second/10)))
		}
		o.since, o.reported = time.Time{}, false
	case o.since.IsZero():
		o.since = now
	case !o.reported && now.Sub(o.since) > o.Times.Peer && o.Links.IsRunning() && o.RunCtx.Err() == nil:
		o.reported = true
		o.Log.Warn("the shared file system does not respond to "+o.NodeNames(stalled)+
			": the job continues while every peer link is healthy, within the timeout",
			zap.Duration("timeout", o.Times.Share))
	}
}
