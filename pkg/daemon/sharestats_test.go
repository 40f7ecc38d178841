package daemon

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestShareStats verifies that the records have what each daemon has counted.
func TestShareStats(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 3, "true")
		j.start().expect(0, 0, 0)
		report := j.result().Share
		if report == nil || report.Head.Calls == 0 || report.Head.ByKind["open"] == 0 || report.Head.Slowest.Took == 0 {
			t.Errorf("the result tells of the share: %+v", report)
		}
		for nodeIndex := 1; nodeIndex < 3; nodeIndex++ {
			done := readRecordOf[record.Done](j, signal.NodesDir, signal.NodeName(nodeIndex, 3, record.StateDone))
			if done.Share == nil || done.Share.ByKind["link"] == 0 {
				t.Errorf("node %d tells of the share: %+v", nodeIndex, done.Share)
			}
		}
	})
}
