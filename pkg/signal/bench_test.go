package signal

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func BenchmarkPublish(b *testing.B) {
	for _, tc := range []struct {
		name    string
		durable bool
	}{{"plain", false}, {"durable", true}} {
		b.Run(tc.name, func(b *testing.B) {
			d := create(b, newPlace(b))
			ctx := b.Context()
			for i := 0; b.Loop(); i++ {
				if err := d.PublishRecord(ctx, NodesDir, "0001.state"+strconv.Itoa(i), &record.Mark{}, tc.durable); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBeat(b *testing.B) {
	d := create(b, newPlace(b))
	for b.Loop() {
		if err := d.WriteHeartbeat(b.Context(), NodesDir, record.StateHeartbeat); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFind measures how long a worker takes to find a run that its head has made, in a log
// directory with many older runs.
func BenchmarkFind(b *testing.B) {
	for _, runs := range []int{0, 1000, 10000} {
		b.Run(strconv.Itoa(runs), func(b *testing.B) {
			p := newPlace(b)
			create(b, p)
			for run := range runs {
				mkdir(b, filepath.Join(p.LogDir, strconv.Itoa(4_000_000+run)+".0"), dirMode)
			}
			p.NodeIndex = 1
			for b.Loop() {
				if _, _, err := NewFinder(p).AwaitRun(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkList1024 measures one poll of the head of 1024 nodes, each of which has joined, is up
// and sends heartbeats, and the head's queries of the listing.
func BenchmarkList1024(b *testing.B) {
	const size = 1024
	p := newPlace(b)
	p.Size = size
	d := create(b, p)
	nodes := filepath.Join(d.Path(), NodesDir)
	for node := range size {
		for _, name := range []string{NodeName(node, size, record.StateJoined), NodeName(node, size, record.StateServiceUp), numberedName(node, size, record.StateHeartbeat, 1000)} {
			if err := d.access.FS.WriteFile(filepath.Join(nodes, name), nil, false); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		names, err := d.access.FS.ListDir(nodes, nil)
		l := newListing(names, size, 1, time.Now())
		if err != nil || len(l.NodesNotIn(record.StateServiceUp, size)) != 0 || len(l.Heartbeats(record.StateHeartbeat)) != size {
			b.Fatal(err)
		}
	}
}

// BenchmarkWatchToSeen measures the time from just before a record's rename to the wake-up of a
// goroutine that waits for it.
func BenchmarkWatchToSeen(b *testing.B) {
	for _, tc := range []struct {
		name   string
		local  bool
		waited time.Duration // before the record is published
	}{
		{"hinted", true, time.Millisecond},
		{"polled", false, time.Millisecond},
		{"polled-after-100ms", false, 100 * time.Millisecond},
	} {
		b.Run(tc.name, func(b *testing.B) {
			d := create(b, newPlace(b))
			d.fileSystem.Local = tc.local
			w := d.NewWatch(NodesDir, HeadPace)
			watching(b, w)
			var took time.Duration
			rounds := 0
			for ; b.Loop(); rounds++ {
				took += toSeen(b, d, w, "0001.state"+strconv.Itoa(rounds), tc.waited)
			}
			b.ReportMetric(float64(took.Microseconds())/float64(rounds), "µs/seen")
		})
	}
}

func toSeen(b *testing.B, d *Dir, w *Watch, name string, waited time.Duration) time.Duration {
	seen := make(chan time.Time, 1)
	go func() {
		_, err := w.WaitListing(b.Context(), shows(name))
		if err != nil {
			b.Error(err)
		}
		seen <- time.Now()
	}()
	if !ctxutil.SleepContext(b.Context(), waited) {
		b.Fatal("the benchmark has ended")
	}
	temporary := filepath.Join(w.path, "."+name)
	if err := d.access.FS.WriteFile(temporary, []byte("{}\n"), false); err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	if err := d.access.renamePrivate(temporary, filepath.Join(w.path, name)); err != nil {
		b.Fatal(err)
	}
	return (<-seen).Sub(begin)
}
