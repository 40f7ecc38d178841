package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// BadNodesVersion is the version of BadNodes as JSON. It increases if a field is removed or changes
// its meaning.
const BadNodesVersion = 1

// Limits of what is read: the log directories belong to users who are not trusted.
const (
	maxLogDirNames = 100_000 // in a log directory
	maxReadRuns    = 10_000  // of a log directory, the newest ones
	maxDirBlames   = 10_000  // of a log directory
	maxResultBytes = 1 << 20 // a record has no more
	maxCauseLength = 200     // in characters
)

// blameTimeout limits the time for reading all log directories.
const blameTimeout = 10 * time.Minute

// BadNodes has the nodes that the runs of log directories blame, as --json prints them.
type BadNodes struct {
	Version     int `json:"v"`
	Directories int `json:"directories"` // the number that were read
	// Problems are single lines about directories and runs that were not read.
	Problems []string  `json:"problems"`
	Nodes    []BadNode `json:"nodes"` // those that the most users blame first
}

// BadNode is a host that runs blame. Its texts are short single lines without control characters.
type BadNode struct {
	Host  string `json:"host"`
	Runs  int    `json:"runs"`  // the number of runs
	Users []int  `json:"users"` // the ids of the users to whom the runs belong
	// LastAt is when the last of the runs ended, and LastRun its directory. LastCause is what ended
	// the last of which that is known; empty if it is known of none.
	LastAt    time.Time `json:"last_at"`
	LastRun   string    `json:"last_run"`
	LastCause string    `json:"last_cause,omitempty"`
}

// Blame is a host that one run blames.
type Blame struct {
	Host, Run string // Run is the run's directory
	User      int    // the owner of the record
	At        time.Time
	Cause     string
}

// SummarizeBlames counts the runs and the users that blame each host. It returns the hosts that at
// least minUsers users blame: first those of the most users, and then of the most runs, because the
// runs of a single user are a single source.
func SummarizeBlames(blames []Blame, minUsers int) []BadNode {
	of := make(map[string]*BadNode)
	causedAt := make(map[string]time.Time) // the time of LastCause
	seen := make(map[[2]string]bool)
	for _, b := range blames {
		node := of[b.Host]
		if node == nil {
			node = &BadNode{Host: b.Host}
			of[b.Host] = node
		}
		if key := [2]string{b.Host, b.Run}; !seen[key] {
			seen[key] = true
			node.Runs++
		}
		if !slices.Contains(node.Users, b.User) {
			node.Users = append(node.Users, b.User)
		}
		if node.LastRun == "" || b.At.After(node.LastAt) {
			node.LastAt, node.LastRun = b.At, b.Run
		}
		if b.Cause != "" && (node.LastCause == "" || b.At.After(causedAt[b.Host])) {
			node.LastCause, causedAt[b.Host] = b.Cause, b.At
		}
	}
	nodes := []BadNode{}
	for _, node := range of {
		if len(node.Users) >= minUsers {
			slices.Sort(node.Users)
			nodes = append(nodes, *node)
		}
	}
	slices.SortFunc(nodes, func(a, b BadNode) int {
		return cmp.Or(len(b.Users)-len(a.Users), b.Runs-a.Runs, b.LastAt.Compare(a.LastAt),
			cmp.Compare(a.Host, b.Host))
	})
	return nodes
}

// BlameQuery selects what ReadBadNodes reads.
type BlameQuery struct {
	MaxAge   time.Duration // of the end of a run; 0: any
	MinUsers int           // the least number of users that blame a node
}

// ReadBadNodes reads what the runs of log directories record about bad nodes. It is for root, and
// trusts none of the directories: it follows no link, reads only regular files of limited size, and
// attributes them to their owner. A directory that cannot be read is a problem of the result. If none
// can, the error is a *signal.DirError.
func ReadBadNodes(ctx context.Context, dirs []string, query BlameQuery) (BadNodes, error) {
	found := BadNodes{Version: BadNodesVersion, Problems: []string{}}
	reading, cancel := context.WithTimeoutCause(ctx, blameTimeout,
		fmt.Errorf("the directories before it took %s: give fewer", blameTimeout))
	defer cancel()
	readers := make([]*blameReader, len(dirs))
	var group errgroup.Group
	group.SetLimit(maxConcurrentReads)
	for i, dir := range dirs {
		// A slash at the end of the path would follow a link.
		readers[i] = &blameReader{path: filepath.Clean(dir)}
		if query.MaxAge > 0 {
			readers[i].since = time.Now().Add(-query.MaxAge)
		}
		group.Go(func() error {
			if err := context.Cause(reading); err != nil {
				readers[i].addProblem(err)
			} else {
				readers[i] = readers[i].readBounded(reading)
			}
			return nil
		})
	}
	_ = group.Wait()
	if err := context.Cause(ctx); err != nil {
		return found, err
	}
	var blames []Blame
	var read []fs.FileInfo
	for _, r := range readers {
		isSame := func(other fs.FileInfo) bool { return os.SameFile(r.info, other) }
		if r.isRead && slices.ContainsFunc(read, isSame) { // it was given twice
			continue
		}
		blames = append(blames, r.blames...)
		for _, problem := range r.problems {
			found.Problems = append(found.Problems, textutil.SingleLine("cannot read "+problem, 500))
		}
		if r.isRead {
			read = append(read, r.info)
		}
	}
	found.Directories = len(read)
	found.Nodes = SummarizeBlames(blames, query.MinUsers)
	if found.Directories == 0 {
		host, _ := os.Hostname()
		return found, &signal.DirError{Path: dirs[0], Host: host,
			Problem: strings.Join(found.Problems, "; "), Remedy: "give the log directories of users"}
	}
	return found, nil
}

// blameReader reads one log directory.
type blameReader struct {
	path     string
	since    time.Time   // runs that ended earlier do not count; zero: all count
	info     fs.FileInfo // of the directory
	isRead   bool
	blames   []Blame
	problems []string // each begins with a path
	// skipped is the number of records that cannot be read, and firstSkip why the first cannot.
	skipped   int
	firstSkip error
}

// readBounded reads the directory within pollTimeout, and returns the reader with what it has found
// by then, or one with only a problem if a call hangs.
func (r *blameReader) readBounded(ctx context.Context) *blameReader {
	ctx, cancel := withPollTimeout(ctx)
	defer cancel()
	read, err := ctxutil.CallBounded(ctx, time.Second, func() (*blameReader, error) {
		return r, r.read(ctx)
	})
	switch {
	case errors.Is(err, ctxutil.ErrAbandoned): // r is still in use
		silent := &blameReader{path: r.path}
		silent.addProblem(fmt.Errorf("it does not respond within %s", pollTimeout))
		return silent
	case err != nil:
		read.addProblem(bareReason(err))
	}
	return read
}

// bareReason returns why a directory or file cannot be read, without its path.
func bareReason(err error) error {
	if at, is := errors.AsType[*fs.PathError](err); is {
		return at.Err
	}
	return err
}

func (r *blameReader) read(ctx context.Context) error {
	dir, err := files.OpenForeign(r.path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // it was only read
	names, isCut, err := dir.Names(maxLogDirNames)
	if err != nil {
		return err
	}
	r.info, r.isRead = dir.Info, true
	if isCut {
		r.addProblem(errMoreThan(maxLogDirNames, "names", "the others"))
	}
	runs := r.newestRuns(ctx, dir, names)
	if len(runs) > maxReadRuns {
		r.addProblem(errMoreThan(maxReadRuns, "runs", "the older ones"))
		runs = runs[:maxReadRuns]
	}
	// The list of a run beside its directory counts only if its own result is not there.
	hasResult := make(map[string]bool)
	for _, name := range runs {
		if r.isFull(ctx) {
			break
		}
		hasResult[name], err = r.readRun(dir, name)
		r.skip(name, err)
	}
	r.skip(signal.BadNodesDir, r.readLists(ctx, dir, hasResult))
	if len(r.blames) > maxDirBlames {
		r.addProblem(errMoreThan(maxDirBlames, "records", "the older ones"))
		r.blames = r.blames[:maxDirBlames]
	}
	if ctx.Err() != nil {
		r.addProblem(fmt.Errorf("it takes more than %s", pollTimeout))
	}
	if r.skipped > 0 {
		r.addProblem(fmt.Errorf("%d %s, such as %w", r.skipped, textutil.PluralForm(r.skipped, "record"),
			r.firstSkip))
	}
	return nil
}

func errMoreThan(limit int, what, which string) error {
	return fmt.Errorf("it has more than %d %s: %s are left out", limit, what, which)
}

// isFull reports whether no more is to be read: a limit is reached.
func (r *blameReader) isFull(ctx context.Context) bool {
	return ctx.Err() != nil || len(r.blames) > maxDirBlames
}

// skip counts a record that cannot be read. It ignores one that does not exist.
func (r *blameReader) skip(name string, err error) {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	if r.skipped++; r.firstSkip == nil {
		r.firstSkip = fmt.Errorf("%s: %w", name, bareReason(err))
	}
}

func (r *blameReader) addProblem(err error) {
	what := r.path
	if r.isRead {
		what += " completely"
	}
	r.problems = append(r.problems, what+": "+err.Error())
}

// newestRuns returns the names of directories that may be runs and have changed since r.since, the
// one that was changed last first. The result of a run changes its directory.
func (r *blameReader) newestRuns(ctx context.Context, dir files.ForeignDir, names []string) []string {
	changed := make(map[string]time.Time)
	runs := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		if strings.HasPrefix(name, ".") || name == signal.LatestLink || name == signal.BadNodesDir ||
			r.isFull(ctx) {
			return true
		}
		at, isDir := dir.ChangedAt(name)
		changed[name] = at
		return !isDir || at.Before(r.since)
	})
	slices.SortFunc(runs, func(a, b string) int {
		return cmp.Or(changed[b].Compare(changed[a]), cmp.Compare(a, b))
	})
	return runs
}

// readRun reads the result of a run, and reports whether there is one.
func (r *blameReader) readRun(dir files.ForeignDir, name string) (hasResult bool, err error) {
	run, err := dir.OpenDir(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = run.Close() }() // it was only read
	text, info, err := run.ReadFile(signal.NameResult, maxResultBytes)
	if err != nil {
		return false, err
	}
	var result record.Result
	if err := json.Unmarshal(text, &result); err != nil {
		return false, fmt.Errorf("%s is no result", signal.NameResult)
	}
	if result.Version != record.ResultVersion {
		return false, &record.VersionError{Version: result.Version, Supported: record.ResultVersion}
	}
	causes := make(map[string]string)
	for _, dropped := range result.Dropped {
		causes[dropped.Host] = dropped.Reason
	}
	return true, r.add(name, info, result.BadNodes, func(host string) string {
		return cmp.Or(causes[host], result.Reason)
	})
}

// readLists reads the lists of bad nodes beside the runs, without those of runs whose results were
// read.
func (r *blameReader) readLists(ctx context.Context, dir files.ForeignDir, hasResult map[string]bool) error {
	lists, err := dir.OpenDir(signal.BadNodesDir)
	if err != nil {
		return err
	}
	defer func() { _ = lists.Close() }() // it was only read
	names, isCut, err := lists.Names(maxReadRuns)
	if err == nil && isCut {
		err = errMoreThan(maxReadRuns, "names", "the others")
	}
	for _, name := range names {
		if strings.HasPrefix(name, ".") || hasResult[name] {
			continue
		}
		if r.isFull(ctx) {
			break
		}
		text, info, err := lists.ReadFile(name, maxResultBytes)
		if err == nil { // no list has a cause
			err = r.add(name, info, strings.Fields(string(text)), func(string) string { return "" })
		}
		r.skip(name, err)
	}
	return err
}

// add adds the hosts that a run blames in a file, unless the file is too old. Its error reports names
// that are none of hosts.
func (r *blameReader) add(run string, file fs.FileInfo, hosts []string, causeOf func(string) string) error {
	// The owner may have set any time.
	at := file.ModTime()
	if now := time.Now(); at.After(now) {
		at = now
	}
	if at.Before(r.since) || at.Before(time.Unix(0, 0)) {
		return nil
	}
	refused := 0
	slices.Sort(hosts)
	for _, host := range slices.Compact(hosts) {
		if !isHostName(host) {
			refused++
			continue
		}
		if len(r.blames) <= maxDirBlames { // one more says that there are more
			r.blames = append(r.blames, Blame{
				Host: host, Run: textutil.SingleLine(filepath.Join(r.path, run), 500),
				User: files.OwnerOf(file), At: at,
				Cause: textutil.SingleLine(causeOf(host), maxCauseLength),
			})
		}
	}
	if refused > 0 {
		return fmt.Errorf("%d of the names in it are none of a host", refused)
	}
	return nil
}

// reservedHosts are words that scontrol or a configuration file takes for all nodes or for none.
var reservedHosts = []string{"all", "none", "default", "localhost"}

// isHostName reports whether a text, which a user who is not trusted has written, can only name one
// host in the commands of a launcher.
func isHostName(text string) bool {
	return launcher.IsHostName(text) && text[0] != '_' && !slices.Contains(reservedHosts, strings.ToLower(text))
}

// Text formats the nodes as a table for people; empty if there are none.
func (b BadNodes) Text(now time.Time) string {
	if len(b.Nodes) == 0 {
		return ""
	}
	rows := [][]string{{"NODE", "USERS", "RUNS", "LAST", "CAUSE"}}
	for _, n := range b.Nodes {
		rows = append(rows, []string{n.Host, fmt.Sprint(len(n.Users)), fmt.Sprint(n.Runs),
			formatElapsed(now.Sub(n.LastAt)) + " ago", cmp.Or(n.LastCause, "-")})
	}
	return textutil.FormatTable(rows)
}

// HostList returns the names of the nodes as one node list, as scontrol accepts it; empty if there
// are none.
func (b BadNodes) HostList() string {
	return launcher.CompactNodeList(textutil.MapSlice(b.Nodes, func(n BadNode) string { return n.Host }))
}
