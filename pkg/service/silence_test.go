package service_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/service"
)

// printer is a program that prints pieces of text at times.
type printer struct {
	process.Handle
	start  time.Time
	pieces []piece
	ended  chan struct{}
	reads  int // how often its lines were read
}

type piece struct {
	after time.Duration
	lines []string
}

func (p *printer) printed() (all []piece) {
	for _, piece := range p.pieces {
		if time.Since(p.start) >= piece.after {
			all = append(all, piece)
		}
	}
	return all
}

func (p *printer) OutputStats() (bytes int64, ago time.Duration) {
	all := p.printed()
	if len(all) == 0 {
		return 0, 0
	}
	return int64(len(all)), time.Since(p.start) - all[len(all)-1].after
}

func (p *printer) LastLines() (lines []string) {
	for _, piece := range p.printed() {
		lines = append(lines, piece.lines...)
	}
	return lines
}

func (p *printer) RecentLines() (out, err []string) {
	p.reads++
	return nil, p.LastLines()
}

func (p *printer) PID() int { return 7 }

func (p *printer) Ended() <-chan struct{} { return p.ended }

// TestSilenceWatch verifies which silences are reported, when, that lines are read once for each, and
// that a program which uses the processor is not silent.
func TestSilenceWatch(t *testing.T) {
	const end = 10 * time.Minute
	failed := []string{
		"Traceback (most recent call last):", `  File "t.py", line 3, in f`, "ValueError: x",
	}
	steps := slices.Repeat([]string{"step"}, 99)
	type change struct {
		after time.Duration
		line  string
	}
	const second, minute = time.Second, time.Minute
	for _, tc := range []struct {
		name   string
		pieces []piece
		endsAt time.Duration
		// the part of a core that it uses until a time
		works      float64
		worksUntil time.Duration
		want       []change
		reads      int
	}{
		{"prints nothing", nil, end, 0, 0, nil, 0},
		{"prints an error", []piece{{second, failed}}, end, 0, 0,
			[]change{{65 * second, "ValueError: x"}, {end, ""}}, 1},
		{"prints something else", []piece{{second, []string{"step 1"}}}, end, 0, 0, nil, 1},
		{"goes on at once", []piece{{second, failed}, {50 * second, steps}}, end, 0, 0, nil, 1},
		{"goes on late", []piece{{second, failed}, {178 * second, steps}}, end, 0, 0,
			[]change{{65 * second, "ValueError: x"}, {3 * minute, ""}}, 2},
		{"ends late", []piece{{second, failed}}, 178 * second, 0, 0,
			[]change{{65 * second, "ValueError: x"}, {3 * minute, ""}}, 1},
		{"ends at once", []piece{{second, failed}}, 30 * second, 0, 0, nil, 0},
		{"works", []piece{{second, failed}}, end, 0.5, end, nil, 1},
		{"works for some time", []piece{{second, failed}}, end, 0.5, 2 * minute,
			[]change{{3 * minute, "ValueError: x"}, {end, ""}}, 1},
		{"only beats", []piece{{second, failed}}, end, 0.01, end,
			[]change{{65 * second, "ValueError: x"}, {end, ""}}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				program := &printer{start: time.Now(), pieces: tc.pieces, ended: make(chan struct{})}
				time.AfterFunc(tc.endsAt, func() { close(program.ended) })
				ctx, cancel := context.WithTimeout(t.Context(), end)
				defer cancel()
				var got []change
				service.SilenceWatch{After: time.Minute, Programs: []process.Handle{program},
					CPUTimes: func(pids []int) (map[int]time.Duration, error) {
						ago := min(time.Since(program.start), tc.worksUntil)
						return map[int]time.Duration{pids[0]: second + time.Duration(tc.works*float64(ago))}, nil
					},
					OnChange: func(_ process.Handle, line string) {
						got = append(got, change{time.Since(program.start), line})
					},
				}.Run(ctx)
				if !slices.Equal(got, tc.want) || program.reads != tc.reads {
					t.Errorf("%v, after %d reads, want %v and %d", got, program.reads, tc.want, tc.reads)
				}
			})
		})
	}
}
