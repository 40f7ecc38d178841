package health

import (
	"testing"
	"time"
)

func TestTempo(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		for _, size := range []int{1, 5, 8, 16, 70, 256, 4096} {
			head, worker := HeadHeartbeatTiming(timeout, size), WorkerHeartbeatTiming(timeout, size)
			// The head must detect a death within this time: the latest heartbeat and one late poll.
			if worst := head.SilenceTimeout + 2*head.MaxPollInterval; worst > timeout {
				t.Errorf("%d nodes: within %s a death may take the head %s to see", size, timeout, worst)
			}
			if head.SilenceTimeout < 2*worker.HeartbeatInterval || worker.SilenceTimeout < 5*head.HeartbeatInterval {
				t.Errorf("%d nodes: one late beat makes a peer lost: %v, %v", size, head, worker)
			}
			few := size <= 8
			if worst := head.SilenceTimeout + 2*head.MaxPollInterval + worker.MaxPollInterval; few && worst > timeout {
				t.Errorf("%d nodes: within %s a death may take %s to end all", size, timeout, worst)
			}
			// A poll comes up to a quarter earlier.
			calls := 1/worker.HeartbeatInterval.Seconds() + 3/(0.875*worker.MaxPollInterval.Seconds())
			if most := 0.5 * 10 / timeout.Seconds(); size >= 70 && calls > most {
				t.Errorf("%d nodes: each makes %.2f calls a second, want %.2f", size, calls, most)
			}
		}
	}
}
