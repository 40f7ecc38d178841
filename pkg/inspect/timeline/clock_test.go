package timeline

import (
	"math/rand/v2"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestEstimateOffset(t *testing.T) {
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	down := func(wrote, saw int) clockExchange { return clockExchange{writtenAt: at(wrote), readAt: at(saw)} }
	up := func(wrote, saw int) clockExchange {
		return clockExchange{writtenAt: at(wrote), readAt: at(saw), fromNode: true}
	}
	offset := func(ms int) Clock { return Clock{Offset: time.Duration(ms) * time.Millisecond} }
	known := func(ms, residual int) Clock {
		return Clock{Known: true, Offset: offset(ms).Offset, Residual: offset(residual).Offset}
	}
	for _, test := range []struct {
		name      string
		exchanges []clockExchange
		sameHost  bool
		want      Clock
	}{
		{"nothing is known", nil, false, Clock{}},
		{"one way only, and 0 is possible", []clockExchange{down(0, 20)}, false, Clock{}},
		{"one way only, seen before", []clockExchange{down(0, -500)}, false, offset(-500)},
		{"the other way only, seen before", []clockExchange{up(500, 0)}, false, offset(500)},
		{"equal clocks", []clockExchange{down(0, 20), up(30, 50)}, false, known(0, 20)},
		{"ahead", []clockExchange{down(0, 3_600_020), up(3_600_030, 40)}, false, known(3_600_005, 15)},
		{"behind", []clockExchange{down(0, -3_599_980), up(-3_599_970, 40)}, false, known(-3_599_995, 15)},
		{"the closest count", []clockExchange{
			down(0, 900), down(1000, 1010), up(0, 700), up(1020, 1040),
		}, false, known(-5, 15)},
		{"one machine", []clockExchange{down(0, 20), up(30, 100)}, true, known(0, 0)},
		{"one machine, and nothing was exchanged", nil, true, known(0, 0)},
		{"one name for two machines", []clockExchange{down(0, 1020), up(1030, 40)}, true, known(1005, 15)},
		{"the clock was set meanwhile", []clockExchange{down(0, -100), up(300, 100)}, false, known(50, 150)},
		{"implausible times", []clockExchange{
			{readAt: noon}, {writtenAt: noon, readAt: noon.AddDate(5000, 0, 0), fromNode: true},
		}, false, Clock{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := estimateOffset(test.exchanges, test.sameHost); got != test.want {
				t.Errorf("the clock is %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestEstimatesHoldTheTrueOffset verifies for any clocks and delays that the estimate differs from
// the true offset by at most the residual, and that no record is seen before it was written.
func TestEstimatesHoldTheTrueOffset(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		offset := time.Duration(random.Int64N(int64(2*time.Hour))) - time.Hour
		var exchanges []clockExchange
		down, up := false, false
		for range random.IntN(8) {
			wrote := noon.Add(time.Duration(random.Int64N(int64(time.Minute))))
			saw := wrote.Add(time.Duration(random.ExpFloat64() * float64(50*time.Millisecond)))
			if random.IntN(2) == 0 {
				exchanges, down = append(exchanges, clockExchange{writtenAt: wrote, readAt: saw.Add(offset)}), true
			} else {
				exchange := clockExchange{writtenAt: wrote.Add(offset), readAt: saw, fromNode: true}
				exchanges, up = append(exchanges, exchange), true
			}
		}
		got := estimateOffset(exchanges, false)
		if got.Known != (down && up) {
			t.Fatalf("of %+v the clock is %+v", exchanges, got)
		}
		if far := (got.Offset - offset).Abs(); got.Known && far > got.Residual+1 {
			t.Fatalf("of %+v the clock is %+v, and truly %s", exchanges, got, offset)
		}
		for _, x := range exchanges {
			wrote, saw := x.writtenAt, got.ToHeadTime(x.readAt)
			if x.fromNode {
				wrote, saw = got.ToHeadTime(x.writtenAt), x.readAt
			}
			if saw.Before(wrote.Add(-1)) {
				t.Fatalf("of %+v one is seen %s before it was written by %+v", exchanges, wrote.Sub(saw), got)
			}
		}
	}
}

func TestToHeadTime(t *testing.T) {
	clock := Clock{Known: true, Offset: time.Hour}
	for _, at := range []time.Time{{}, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
		if got := clock.ToHeadTime(at); !got.Equal(at) {
			t.Errorf("%s becomes %s", at, got)
		}
	}
	if got := clock.ToHeadTime(noon); !got.Equal(noon.Add(-time.Hour)) {
		t.Errorf("noon becomes %s", got)
	}
}
