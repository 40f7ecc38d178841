package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Options say how to read.
type Options struct {
	Depth Depth
	// FileLimit and TotalLimit bound in bytes what is read of one timeline and,
	// as far as each node's share of it is not absurdly small, of all; 0 is the
	// default. Of what is larger, the begin and the end are read.
	FileLimit, TotalLimit int64
	// Now is the clock of who reads; nil: the machine's.
	Now func() time.Time
}

const (
	defaultFileLimit  = 1 << 20
	defaultTotalLimit = 128 << 20
	leastFileLimit    = 16 << 10
	// mostLines bounds the events of one file, twice where its middle is left
	// out, and leastLines what each of many may have.
	mostLines, leastLines, allLines = 20_000, 250, 1_000_000
	// mostNodes bounds the nodes of a run: a damaged record may say anything.
	mostNodes = 1 << 17
	// quickRecords bounds how many records of failures a quick look reads.
	quickRecords = 64
	// atOnce is how many files are read at the same time: a share answers many
	// requests as fast as one.
	atOnce = 16
	// mostProblems bounds what a run tells of them.
	mostProblems = 100
)

// reading is one Read.
type reading struct {
	ctx   context.Context
	opts  Options
	nonce string
	*Run

	trails []told
	mu     sync.Mutex // Problems, while many files are read at once
	more   int        // problems that are not told
}

// Read reads the run directory at dir, which Resolve has found. It fails only
// where there is no run directory, or ctx ends: all else is told in the run's
// Problems.
func Read(ctx context.Context, dir string, opts Options) (*Run, error) {
	opts.FileLimit, opts.TotalLimit = cmp.Or(opts.FileLimit, defaultFileLimit), cmp.Or(opts.TotalLimit, defaultTotalLimit)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	reader, err := signal.OpenReader(ctx, dir)
	if err != nil {
		return nil, err
	}
	top, err := reader.ListDir(ctx, "")
	if err != nil {
		return nil, err
	}
	if !slices.Contains(top.Names, signal.ControlDir) {
		return nil, fmt.Errorf("cannot read a run in %s: it has no %s: %s", dir, signal.ControlDir, mend)
	}
	r := &reading{ctx: ctx, opts: opts, Run: &Run{Path: dir, Name: filepath.Base(dir), ReadAt: opts.Now()}}
	r.readTop(reader, top)
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("cannot read %s to the end: %w", dir, err)
	}
	r.place()
	if r.more > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("and %d more things can't be read", r.more))
	}
	return r.Run, nil
}

// problem notes what can't be read.
func (r *reading) problem(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.Problems) >= mostProblems {
		r.more++
		return
	}
	// All is in the run directory, of which people know where it is.
	r.Problems = append(r.Problems, strings.ReplaceAll(err.Error(), r.Path+"/", ""))
}

// readTop reads all of it, whatever is missing.
func (r *reading) readTop(reader *signal.Reader, top *signal.DirSnapshot) {
	folder := func(sub string, read func(*signal.DirSnapshot)) {
		f, err := reader.ListDir(r.ctx, sub)
		if err != nil {
			r.problem(err)
			return
		}
		read(f)
	}
	folder(signal.ControlDir, r.readJob)
	if slices.Contains(top.Names, signal.NameResult) {
		result, _, err := usable[signal.Result](r, top, signal.NameResult)
		if err == nil && result.Run == "" {
			err = fmt.Errorf("cannot use %s: %w", signal.NameResult, errEmpty)
		}
		if r.problem(err); err == nil {
			r.Result = result
		}
	}
	folder(signal.NodesDir, func(nodes *signal.DirSnapshot) {
		r.makeNodes(nodes.Names)
		folder(signal.ControlDir, r.readControl)
		r.readNodes(nodes)
	})
	if r.Nodes == nil { // nodes/ is missing
		r.makeNodes(nil)
		folder(signal.ControlDir, r.readControl)
	}
	folder(signal.EventsDir, r.readEvents)
}

// readJob reads what all else hangs from.
func (r *reading) readJob(control *signal.DirSnapshot) {
	if !slices.Contains(control.Names, signal.NameJob) {
		r.problem(errors.New("there is no job record: the head may never have come so far"))
		return
	}
	job, at, err := usable[signal.JobRecord](r, control, signal.NameJob)
	r.problem(err)
	if r.Control.Job = (Mark{There: true, At: at}); job != nil {
		r.Job, r.nonce = job, job.Nonce
	}
}

// makeNodes makes a node of each rank that the run has, as far as is known.
func (r *reading) makeNodes(names []string) {
	size := 0
	switch {
	case r.Job != nil:
		size = r.Job.Size
	case r.Result != nil:
		size = r.Result.Size
	default:
		for _, name := range names {
			if rank, _, _, ok := signal.ParseNodeName(name, 0); ok && rank < mostNodes {
				size = max(size, rank+1)
			}
		}
	}
	if size < 0 || size > mostNodes {
		r.problem(fmt.Errorf("the run says that it has %d nodes, of which %d are shown at most", size, mostNodes))
		size = min(max(size, 0), mostNodes)
	}
	r.Nodes = make([]Node, size)
	for rank := range r.Nodes {
		r.Nodes[rank].Rank = rank
	}
	if r.Job != nil && r.Job.Hosts != "" {
		hosts, err := roles.ExpandNodeList(r.Job.Hosts, mostNodes)
		if err == nil && len(hosts) == size {
			r.name(hosts)
		}
	}
	if r.Result != nil && len(r.Result.Hosts) == size {
		r.name(r.Result.Hosts)
	}
}

func (r *reading) name(hosts []string) {
	for rank, host := range hosts {
		r.Nodes[rank].Host = host
	}
}

// sees takes in which host a node says that it is on.
func (n *Node) sees(host string) { n.Host = cmp.Or(n.Host, host) }
