package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// lostTwo returns the expectation and observations of a job that ends correctly after the loss of
// node 2.
func lostTwo() (expectation, seen) {
	e := expectation{
		Any:     []verdict{{76, []health.Kind{health.DaemonDied}, []int{2}}},
		Within:  10 * time.Second,
		Freed:   20 * time.Second,
		Victims: []int{2},
	}
	cause := &record.Failure{Kind: health.DaemonDied, LostNodes: []int{2}}
	o := seen{
		Struck: true, Codes: []int{76, 76, 137, 76}, Srun: 137,
		Ended: []time.Duration{time.Second, time.Second, 0, time.Second},
		Told:  []told{{By: 0, Where: "result.json", Code: 76, Cause: cause}},
	}
	return e, o
}

// driven returns the expectation and observations of a job that its driver has ended.
func driven() (expectation, seen) {
	e := expectation{Any: []verdict{own}, Within: 10 * time.Second, Apart: 5 * time.Second}
	o := seen{
		Struck: true, Codes: []int{42, 0, 0, 0}, Srun: 42, Ended: make([]time.Duration, 4),
		Told: []told{{By: 0, Where: "result.json", Code: 42}},
	}
	return e, o
}

// TestJudge checks the complaints about jobs that did not end as expected.
func TestJudge(t *testing.T) {
	cause := func(kind health.Kind, node int, lost ...int) *record.Failure {
		c := &record.Failure{Kind: kind, LostNodes: lost}
		c.NodeIndex = node
		return c
	}
	for _, tc := range []struct {
		name   string
		from   func() (expectation, seen)
		change func(*expectation, *seen)
		wrong  []string // a part of each complaint, in order
	}{
		{"well", lostTwo, nil, nil},
		{"driven well", driven, nil, nil},
		{"never struck", driven, func(_ *expectation, o *seen) { o.Struck = false },
			[]string{"before the faults"}},
		{"late", lostTwo, func(_ *expectation, o *seen) { o.Ended[3] = time.Minute },
			[]string{"node 3 ended after 1m0s"}},
		{"never ended", lostTwo, func(_ *expectation, o *seen) { o.Ended[1] = -1 },
			[]string{"node 1 has not ended"}},
		{"a victim that is late", lostTwo,
			func(_ *expectation, o *seen) { o.Ended[2] = time.Minute }, []string{"node 2 ended"}},
		{"a victim that takes longer than the others", lostTwo,
			func(_ *expectation, o *seen) { o.Ended[2] = 15 * time.Second }, nil},
		{"driven, and one leaves late", driven,
			func(_ *expectation, o *seen) {
				o.Ended[1] = 6 * time.Second
			}, []string{"the first has ended 6s before"}},
		{"srun ended by us", lostTwo, func(_ *expectation, o *seen) { o.Srun, o.Codes = -1, nil },
			[]string{"srun did not end"}},
		{"srun with a code of its own", lostTwo, func(_ *expectation, o *seen) { o.Srun = 143 },
			[]string{"srun ended with 143"}},
		{"srun of a node that was cut off, ended by us", lostTwo,
			func(e *expectation, o *seen) { e.Cut, o.Srun = true, -1 }, nil},
		{"torn", lostTwo, func(_ *expectation, o *seen) { o.Torn = []string{"go"} },
			[]string{"torn: go"}},
		{"left", lostTwo, func(_ *expectation, o *seen) { o.Left = []string{"sleep"} },
			[]string{"left: sleep"}},
		{"a killed daemon's temporaries", lostTwo, func(e *expectation, o *seen) {
			e.Leaves, o.Left = []int{2}, []string{"node 2: file /tmp/bu-17"}
		}, nil},
		{"another's temporaries", lostTwo, func(e *expectation, o *seen) {
			e.Leaves, o.Left = []int{2}, []string{"node 3: file /tmp/bu-17"}
		}, []string{"left: node 3"}},
		{"each for itself", lostTwo, func(e *expectation, o *seen) {
			e.Each, e.Any = true,
				[]verdict{{66, []health.Kind{health.ShareUnusable}, nil},
					{76, []health.Kind{health.PeerLost}, nil}}
			o.Codes, o.Srun = []int{66, 76, 66, 76}, 76
			o.Told = []told{{By: 0, Code: 66, Cause: cause(health.ShareUnusable, 0)},
				{By: 1, Code: 76, Cause: cause(health.PeerLost, 1, 0)}}
		}, nil},
		{"each for itself, but one", lostTwo, func(e *expectation, o *seen) {
			e.Each, e.Any = true,
				[]verdict{{66, []health.Kind{health.ShareUnusable}, nil},
					{76, []health.Kind{health.PeerLost}, nil}}
			o.Codes, o.Srun = []int{66, 76, 0, 76}, 76
			o.Told = []told{{By: 0, Code: 66, Cause: cause(health.ShareUnusable, 0)}}
		}, []string{"no verdict"}},
		{"another kind", lostTwo,
			func(_ *expectation, o *seen) { o.Told[0].Cause = cause(health.PeerLost, 0, 2) },
			[]string{"no verdict"}},
		{"another node", lostTwo,
			func(_ *expectation, o *seen) { o.Told[0].Cause = cause(health.DaemonDied, 0, 1) },
			[]string{"no verdict"}},
		{"a node too many", lostTwo,
			func(_ *expectation, o *seen) { o.Told[0].Cause = cause(health.DaemonDied, 0, 1, 2) },
			[]string{"no verdict"}},
		{"no report", lostTwo, func(_ *expectation, o *seen) { o.Told = nil },
			[]string{"no verdict"}},
		{"only the victim told", lostTwo, func(_ *expectation, o *seen) { o.Told[0].By = 2 },
			[]string{"no verdict"}},
		{"only the victim told, before it was struck", lostTwo,
			func(e *expectation, o *seen) { e.Two, o.Told[0].By = true, 2 }, nil},
		{"the victim tells something else", lostTwo, func(_ *expectation, o *seen) {
			o.Told = append(o.Told, told{By: 2, Code: 66, Cause: cause(health.ShareUnusable, 2)})
		}, nil},
		{"another tells something else", lostTwo, func(_ *expectation, o *seen) {
			o.Told = append(o.Told, told{By: 3, Code: 76, Cause: cause(health.DaemonDied, 3, 0)})
		}, []string{"no verdict"}},
		{"an internal error, of a victim too", lostTwo, func(_ *expectation, o *seen) {
			o.Told = append(o.Told, told{By: 2, Code: 70, Cause: cause(health.Internal, 2)})
		}, []string{"internal"}},
		{"two codes", lostTwo, func(_ *expectation, o *seen) { o.Codes[1] = 66 },
			[]string{"no verdict"}},
		{"a worker of a driven job with a code", driven,
			func(_ *expectation, o *seen) { o.Codes[1] = 42 }, []string{"no verdict"}},
		{"harmless, and ended", driven, func(_ *expectation, o *seen) {
			o.Codes, o.Srun = []int{76, 76, 76, 76}, 76
			o.Told[0] = told{Code: 76, Cause: cause(health.HostLost, 0, 1)}
		}, []string{"no verdict"}},
		{"harmful, and driven", lostTwo, func(_ *expectation, o *seen) {
			o.Codes = []int{42, 0, 137, 0}
			o.Told[0] = told{Code: 42}
		}, []string{"no verdict"}},
		{"two, both reported", lostTwo, func(e *expectation, o *seen) {
			e.All, o.Told[0].Lost, o.Told[0].Bad = []int{1, 2}, []int{2, 1}, []string{"n1", "n2"}
		}, nil},
		{"two, one of them not reported", lostTwo, func(e *expectation, o *seen) {
			e.All, o.Told[0].Lost, o.Told[0].Bad = []int{1, 2}, []int{2}, []string{"n1", "n2"}
		}, []string{"does not name the nodes [1]"}},
		{"two, of which one is not avoided", lostTwo, func(e *expectation, o *seen) {
			e.All, o.Told[0].Lost, o.Told[0].Bad = []int{1, 2}, []int{2, 1}, []string{"n2"}
		}, []string{"too few bad nodes"}},
		{"one was told the code alone", lostTwo, func(_ *expectation, o *seen) {
			o.Told = append(o.Told, told{By: 3, Code: 76, Cause: cause(health.Aborted, 3)})
		}, nil},
		{"all were told the code alone", lostTwo,
			func(_ *expectation, o *seen) { o.Told[0].Cause = cause(health.Aborted, 0) },
			[]string{"no verdict"}},
		{"one was told another code", lostTwo, func(_ *expectation, o *seen) {
			o.Told = append(o.Told, told{By: 3, Code: 66, Cause: cause(health.Aborted, 3)})
		}, []string{"no verdict"}},
		{"one of two", lostTwo, func(e *expectation, _ *seen) {
			e.Any = append([]verdict{{77, []health.Kind{health.ServiceDied}, []int{1}}}, e.Any...)
		}, nil},
		{"driven, and no report", driven, func(_ *expectation, o *seen) { o.Told = nil },
			[]string{"no verdict"}},
		{"driven, and no report is required", driven,
			func(e *expectation, o *seen) { e.Mute, o.Told = true, nil }, nil},
		{"the head is killed in the drain", driven, func(e *expectation, o *seen) {
			e.Victims, o.Codes[0], o.Srun, o.Told = []int{0}, 137, 137, nil
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, o := tc.from()
			if tc.change != nil {
				tc.change(&e, &o)
			}
			got := judge(e, o)
			if !slices.EqualFunc(got, tc.wrong, strings.Contains) {
				t.Errorf("wrong is %q, want %q", got, tc.wrong)
			}
		})
	}
}
