package simulate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// BenchmarkShards compares one directory with several directories for the names of 4096 nodes: each
// node writes a file and renames it (joined), creates one (up), and creates and renames one (a
// heartbeat); then the head lists them all. TMPDIR is the location, which should be on a shared
// file system.
func BenchmarkShards(b *testing.B) {
	const nodes = 4096
	for _, shards := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("%d", shards), func(b *testing.B) {
			var making, listing time.Duration
			for range b.N {
				b.StopTimer()
				top, err := os.MkdirTemp(b.TempDir(), "names-")
				if err != nil {
					b.Fatal(err)
				}
				dirs := makeShards(b, top, shards)
				b.StartTimer()
				began := time.Now()
				makeNames(b, dirs, nodes)
				making += time.Since(began)
				began = time.Now()
				if got := listNames(b, dirs); got != 3*nodes {
					b.Fatalf("the head sees %d names of %d", got, 3*nodes)
				}
				listing += time.Since(began)
				b.StopTimer()
				if err := os.RemoveAll(top); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(making.Microseconds())/float64(b.N)/1000, "ms/making")
			b.ReportMetric(float64(listing.Microseconds())/float64(b.N)/1000, "ms/listing")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func makeShards(b *testing.B, top string, shards int) (dirs []string) {
	for i := range shards {
		dirs = append(dirs, filepath.Join(top, fmt.Sprintf("%02d", i)))
		if err := os.Mkdir(dirs[i], 0o700); err != nil {
			b.Fatal(err)
		}
	}
	return dirs
}

// atOnce is the number of concurrent calls: about the number of a metadata server's threads.
const atOnce = 64

// makeNames creates the names of every node.
func makeNames(b *testing.B, dirs []string, nodes int) {
	record := make([]byte, 300)
	var all errgroup.Group
	all.SetLimit(atOnce)
	for node := range nodes {
		all.Go(func() error {
			name := fmt.Sprintf("%s/%04d.", dirs[node%len(dirs)], node)
			return errors.Join(
				os.WriteFile(name+"tmp", record, 0o600),
				os.Rename(name+"tmp", name+"joined"),
				os.WriteFile(name+"up", nil, 0o600),
				os.WriteFile(name+"beat.000001", nil, 0o600),
				os.Rename(name+"beat.000001", name+"beat.000002"),
			)
		})
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
}

func listNames(b *testing.B, dirs []string) (seen int) {
	for _, path := range dirs {
		dir, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		names, err := dir.Readdirnames(-1)
		_ = dir.Close()
		if err != nil {
			b.Fatal(err)
		}
		seen += len(names)
	}
	return seen
}
