package attempt

import (
	"testing"
	"time"
)

func TestChoose(t *testing.T) {
	const no, yes = false, true
	for _, tc := range []struct {
		name       string
		seen       seen
		floor      int
		relaunches bool
		want       move
	}{
		{"the first", seen{newest: -1}, 0, no, move{begin, 0}},
		{"one is under way", seen{newest: 0}, 0, no, move{begin, 0}},
		{"a later one is under way", seen{newest: 4}, 0, yes, move{begin, 4}},
		{"an earlier daemon was in it", seen{newest: 4, joined: yes}, 0, no, move{await, 4}},
		{"over, and another follows", seen{newest: 4, over: yes, joined: yes, next: 5}, 0, no, move{begin, 5}},
		{"over for good", seen{newest: 4, over: yes, joined: yes}, 0, no, move{finish, 4}},
		{"over, and its name is used anew", seen{newest: 4, over: yes}, 0, yes, move{begin, 5}},
		{"over, and well", seen{newest: 4, over: yes, well: yes}, 0, yes, move{finish, 4}},
		{"the next one is not there yet", seen{newest: 4, over: yes, joined: yes}, 5, no, move{begin, 5}},
		{"the last one does not seem to be over", seen{newest: 4, joined: yes}, 5, no, move{begin, 5}},
		{"others are further", seen{newest: 7}, 5, no, move{begin, 7}},
		{"nothing is shown of what was there", seen{newest: -1}, 5, no, move{begin, 5}},
		{"a requeue's number says nothing of ours", seen{newest: 4, over: yes, next: 2}, 0, no, move{finish, 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := choose(tc.seen, tc.floor, tc.relaunches); got != tc.want {
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
		if got := backoff(tc.first, tc.row); got != tc.want {
			t.Errorf("after %d in a row it is %s, not %s", tc.row, got, tc.want)
		}
	}
}
