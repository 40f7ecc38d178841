package attempt

import (
	"testing"
	"time"
)

func TestChoose(t *testing.T) {
	const no, yes = false, true
	for _, tc := range []struct {
		name       string
		seen       attemptState
		floor      int
		relaunches bool
		want       nextMove
	}{
		{"the first", attemptState{newest: -1}, 0, no, nextMove{actionBegin, 0}},
		{"one is under way", attemptState{newest: 0}, 0, no, nextMove{actionBegin, 0}},
		{"a later one is under way", attemptState{newest: 4}, 0, yes, nextMove{actionBegin, 4}},
		{"an earlier daemon was in it", attemptState{newest: 4, joined: yes}, 0, no, nextMove{actionAwait, 4}},
		{"over, and another follows", attemptState{newest: 4, ended: yes, joined: yes, next: 5}, 0, no, nextMove{actionBegin, 5}},
		{"over for good", attemptState{newest: 4, ended: yes, joined: yes}, 0, no, nextMove{actionFinish, 4}},
		{"over, and its name is used anew", attemptState{newest: 4, ended: yes}, 0, yes, nextMove{actionBegin, 5}},
		{"over, and well", attemptState{newest: 4, ended: yes, succeeded: yes}, 0, yes, nextMove{actionFinish, 4}},
		{"the next one is not there yet", attemptState{newest: 4, ended: yes, joined: yes}, 5, no, nextMove{actionBegin, 5}},
		{"the last one does not seem to be over", attemptState{newest: 4, joined: yes}, 5, no, nextMove{actionBegin, 5}},
		{"others are further", attemptState{newest: 7}, 5, no, nextMove{actionBegin, 7}},
		{"nothing is shown of what was there", attemptState{newest: -1}, 5, no, nextMove{actionBegin, 5}},
		{"a requeue's number says nothing of ours", attemptState{newest: 4, ended: yes, next: 2}, 0, no, nextMove{actionFinish, 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := chooseMove(tc.seen, tc.floor, tc.relaunches); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	for _, tc := range []struct {
		first time.Duration
		row   int
		want  time.Duration
	}{
		{time.Second, 1, time.Second},
		{time.Second, 2, 2 * time.Second},
		{time.Second, 6, 32 * time.Second},
		{time.Second, 7, time.Minute},
		{time.Second, 1000, time.Minute},
		{0, 1000, 0},
		{time.Minute, 2, time.Minute},
	} {
		if got := backoffPause(tc.first, tc.row); got != tc.want {
			t.Errorf("after %d in a row it is %s, not %s", tc.row, got, tc.want)
		}
	}
}
