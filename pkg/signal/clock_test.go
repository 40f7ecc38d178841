package signal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestOffsetOf(t *testing.T) {
	began := time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)
	ended := began.Add(3 * time.Second)
	for _, tc := range []struct {
		name    string
		written time.Time
		want    time.Duration
	}{
		{"as it began", began, 0},
		{"on the way", began.Add(time.Second), 0},
		{"as it ended", ended, 0},
		{"the server is ahead", ended.Add(time.Minute), time.Minute},
		{"the server is behind", began.Add(-time.Hour), -time.Hour},
		{"a file system of whole seconds", began.Add(-300 * time.Millisecond), -300 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := EstimateOffset(tc.written, began, ended); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestOffset verifies that the offset of the server's clock is derived from the first record only,
// also of one that is claimed.
func TestOffset(t *testing.T) {
	for _, want := range []time.Duration{time.Hour, -2 * time.Hour} {
		for _, isClaim := range []bool{false, true} {
			p := newPlace(t)
			ahead := want
			p.FS = &faulty{onWrite: func(path string, data []byte) error {
				now := time.Now().Add(ahead)
				return errors.Join(os.WriteFile(path, data, fileMode), os.Chtimes(path, now, now), errWritten)
			}}
			d := create(t, p)
			if offset, known := d.ClockOffset(); known {
				t.Errorf("%s is known before anything was published", offset)
			}
			if isClaim {
				must(t, d.ClaimRecord(within(t), NodesDir, "0000.joined", &record.Joined{}))
			} else {
				publish(t, d, NodesDir, "0000.joined", &record.Joined{})
			}
			ahead = 0
			publish(t, d, NodesDir, NodeName(0, p.Size, record.StateServiceUp), &record.Mark{})
			for _, own := range []*Dir{d, d.ForNode(1)} {
				if offset, known := own.ClockOffset(); !known || (offset-want).Abs() > ceiling {
					t.Errorf("got %s (known: %t), want %s", offset, known, want)
				}
			}
		}
	}
}

// TestOffsetUnknown verifies that a record is published even if the file system does not return its
// time, and that the time is not requested again.
func TestOffsetUnknown(t *testing.T) {
	p := newPlace(t)
	looks := 0
	p.FS = &faulty{onLook: func(string) error { looks++; return errors.New("not told") }}
	d := create(t, p)
	before := looks
	publish(t, d, NodesDir, NodeName(0, p.Size, record.StateJoined), &record.Joined{})
	publish(t, d, NodesDir, NodeName(0, p.Size, record.StateServiceUp), &record.Mark{})
	if offset, known := d.ClockOffset(); known {
		t.Errorf("got %s", offset)
	}
	if looks != before+1 {
		t.Errorf("asked %d times, want once", looks-before)
	}
	if got := names(t, filepath.Join(d.Path(), NodesDir)); len(got) != 2 {
		t.Errorf("left %v", got)
	}
}

func TestSpace(t *testing.T) {
	d := create(t, newPlace(t))
	space, err := d.QuerySpace(within(t))
	if err != nil || space.Size == 0 || space.Free > space.Size {
		t.Errorf("got %+v, %v", space, err)
	}
}
