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

	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	// maxFileBytes is the maximum number of bytes that are read of one event log, maxTotalBytes that of
	// all logs together, and minFileBytes the minimum that each of many logs may have. Of larger logs, the
	// beginning and the end are read.
	maxFileBytes, minFileBytes, maxTotalBytes = 1 << 20, 16 << 10, 128 << 20
	// maxFileLines is the maximum number of events of one file (twice that if its middle is left out),
	// maxTotalLines that of all files together, and minFileLines the minimum that each of many files
	// may have.
	maxFileLines, minFileLines, maxTotalLines = 20_000, 250, 1_000_000
	// maxNodes is the maximum number of nodes of a run, because a damaged record may contain any
	// number.
	maxNodes = 1 << 17
	// maxQuickRecords is the maximum number of failure records that a quick read opens.
	maxQuickRecords = 64
	// maxConcurrentReads is the number of files that are read concurrently: a shared file system
	// answers many requests as fast as one.
	maxConcurrentReads = 16
	// maxProblems is the maximum number of problems that a run lists.
	maxProblems = 100
)

type runReader struct {
	ctx   context.Context
	depth ReadDepth
	nonce string
	*Run

	eventLogs        []decodedLog
	publishedAt      map[nodeAndState]time.Time // when a node began to publish a state, by its clock
	mu               sync.Mutex                 // guards the fields but ctx, depth and nonce
	unlistedProblems int                        // number of problems that are not listed
}

// Read reads the run directory at dir, which runs.Find has returned. It returns an error only if
// there is no run directory, or if ctx ends. All else that cannot be read is listed in the run's
// Problems.
func Read(ctx context.Context, dir string, depth ReadDepth) (*Run, error) {
	reader, err := signal.OpenReader(ctx, dir)
	if err != nil {
		return nil, err
	}
	// Without control/, this is no run directory.
	top, err := reader.ListDir(ctx, "")
	if err != nil {
		return nil, err
	}
	if !slices.Contains(top.Names, signal.ControlDir) {
		return nil, fmt.Errorf("cannot read a run in %s: it has no %s: give the directory of a run",
			dir, signal.ControlDir)
	}
	r := &runReader{
		ctx: ctx, depth: depth, Run: &Run{Path: dir, Name: filepath.Base(dir), ReadAt: time.Now()},
		publishedAt: make(map[nodeAndState]time.Time),
	}
	r.readAll(reader, top)
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("cannot read %s to the end: %w", dir, err)
	}
	// All times are converted at the end, because the clock offsets depend on all records.
	r.convertTimes()
	r.addStarts()
	if r.unlistedProblems > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("%d more records cannot be read", r.unlistedProblems))
	}
	return r.Run, nil
}

// noteProblem adds an error to the run's problems; nil is ignored. It may be called concurrently.
func (r *runReader) noteProblem(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.Problems) >= maxProblems {
		r.unlistedProblems++
		return
	}
	// All files are in the run directory, so relative paths are sufficient.
	r.Problems = append(r.Problems, strings.ReplaceAll(err.Error(), r.Path+"/", ""))
}

// readAll reads the whole run directory, even if parts of it are missing.
func (r *runReader) readAll(reader *signal.Reader, top *signal.DirSnapshot) {
	folder := func(sub string, read func(*signal.DirSnapshot)) {
		f, err := reader.ListDir(r.ctx, sub)
		if err != nil {
			r.noteProblem(err)
			return
		}
		read(f)
	}
	folder(signal.ControlDir, r.readJob)
	// The result exists only after the end of the run.
	if slices.Contains(top.Names, signal.NameResult) {
		result, _, err := readAttemptRecord[record.Result](r, top, signal.NameResult)
		if err == nil && result.Run == "" {
			err = fmt.Errorf("cannot use %s: %w", signal.NameResult, errEmptyRecord)
		}
		if r.noteProblem(err); err == nil {
			r.Result = result
		}
	}
	if r.OtherVersion {
		r.createNodes(nil)
		return
	}
	folder(signal.NodesDir, func(nodes *signal.DirSnapshot) {
		r.createNodes(nodes.Names)
		folder(signal.ControlDir, func(control *signal.DirSnapshot) {
			r.readControl(control)
			r.readRoles(control, nodes)
		})
		r.readNodes(nodes)
	})
	if r.Nodes == nil { // nodes/ is missing
		r.createNodes(nil)
		folder(signal.ControlDir, r.readControl)
	}
	folder(signal.EventsDir, r.readEventLogs)
	if names := r.logsOfLate(); len(names) > 0 {
		folder(signal.LogsDir, func(logs *signal.DirSnapshot) { r.readLastLines(logs, names) })
	}
}

// maxLastLines is the maximum number of logs of roles whose last lines are read.
const maxLastLines = 40

// logsOfLate returns the names of the logs of what the gate waits for: of the first late instances of each
// role, and of the setup commands of the first nodes that have not passed their checks.
func (r *runReader) logsOfLate() (names []string) {
	if r.HasEnded() {
		return nil
	}
	if r.Roles != nil {
		for i := range r.Roles.Roles {
			late := r.Roles.Roles[i].Progress(r.Size()).Late
			for _, instance := range late[:min(len(late), maxInstancesShown)] {
				names = append(names, instance.Log)
			}
		}
		names = names[:min(len(names), maxLastLines)]
	}
	if r.Control.Go.Exists {
		return names
	}
	setups := 0
	for i := range r.Nodes {
		if setups < maxInstancesShown && !r.Nodes[i].HasReached(record.StateChecked) {
			names = append(names, signal.LogName(membership.SetupName, i, r.Size()))
			setups++
		}
	}
	return names
}

func (r *runReader) readLastLines(logs *signal.DirSnapshot, names []string) {
	lines := make([]string, len(names))
	forEachConcurrently(r.ctx, len(names), func(i int) { lines[i] = logs.ReadLastLine(r.ctx, names[i]) })
	r.LastLines = make(map[string]string)
	for i, line := range lines {
		if line != "" {
			r.LastLines[names[i]] = line
		}
	}
}

// readJob reads the job record, on which the evaluation of all other records depends.
func (r *runReader) readJob(control *signal.DirSnapshot) {
	if !slices.Contains(control.Names, signal.NameJob) {
		r.noteProblem(errors.New("there is no job record: the head may never have started the run"))
		return
	}
	job, at, err := readAttemptRecord[record.Job](r, control, signal.NameJob)
	r.noteProblem(err)
	_, r.OtherVersion = errors.AsType[*record.VersionError](err)
	if r.Control.Job = (RecordTime{Exists: true, At: at}); job != nil {
		r.Job, r.nonce = job, job.Nonce
	}
}

// createNodes creates a Node for each node of the run. Their number comes from the job record, the
// result or, without both, from the names in nodes/.
func (r *runReader) createNodes(names []string) {
	size := 0
	switch {
	case r.Job != nil:
		size = r.Job.Size
	case r.Result != nil:
		size = r.Result.Size
	default:
		for _, name := range names {
			if n, ok := signal.ParseStateName(name, 0); ok && n.Member < maxNodes {
				size = max(size, n.Member+1)
			}
		}
	}
	// A damaged record may contain any size.
	if size < 0 || size > maxNodes {
		r.noteProblem(fmt.Errorf("the job record says %d nodes, of which at most %d are shown", size, maxNodes))
		size = min(max(size, 0), maxNodes)
	}
	r.Nodes = make([]Node, size)
	for node := range r.Nodes {
		r.Nodes[node].NodeIndex = node
	}
	// Take over the hosts, if there is one per node. Those of the result take precedence.
	var hosts []string
	if r.Job != nil && r.Job.Hosts != "" {
		hosts, _ = launcher.ExpandNodeList(r.Job.Hosts, maxNodes)
	}
	if r.Result != nil && len(r.Result.Hosts) == size {
		hosts = r.Result.Hosts
	}
	for node, host := range hosts {
		if len(hosts) == size {
			r.Nodes[node].Host = host
		}
	}
}

func (n *Node) noteHost(host string) { n.Host = cmp.Or(n.Host, host) }
